"""LEML as one would write it with numpy and scipy: the same start, the same steps, no kernels of its own."""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse as sp

from tagwise.losses import get_loss


class PlainLEML:
    """The alternation of tagwise.LEML (intercept, unit rows, spectral start) for squared and logistic loss."""

    def __init__(self, rank: int, loss: str, reg: float, rounds: int, inner_iter: int = 5) -> None:
        self.rank, self.loss, self.reg, self.rounds, self.inner_iter = rank, get_loss(loss), reg, rounds, inner_iter

    def fit(self, X: sp.csr_matrix, Y: sp.csr_matrix, observed: sp.csr_matrix | None) -> PlainLEML:
        start = time.perf_counter()
        norms = np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
        self.X = sp.csr_matrix(sp.diags(1 / np.maximum(norms, 1e-30)) @ X).astype(np.float32)
        self.XT, self.Y, self.YT = self.X.T, Y, Y.T
        if observed is None:
            self.fit_full()
        else:
            known = sp.coo_matrix(observed)
            self.rows, self.labels = known.row, known.col
            on = np.asarray(Y[known.row, known.col]).ravel()
            self.targets = self.loss.targets(on).astype(np.float32)
            self.fit_masked()
        self.seconds = time.perf_counter() - start
        return self

    def start(self, slope, row):
        noise = np.random.default_rng(0).standard_normal((self.X.shape[0], self.rank)).astype(np.float32)

        def label_side(scores):
            product = slope.T @ scores
            return product if row is None else product + np.outer(row, scores.sum(axis=0)).astype(np.float32)

        H = label_side(self.X @ (self.XT @ noise))
        for _ in range(2):
            basis = np.linalg.qr(H)[0]
            scores = slope @ basis
            if row is not None:
                scores = scores + (row @ basis).astype(np.float32)
            H = label_side(self.X @ (self.XT @ scores))
        return np.linalg.qr(H)[0].astype(np.float32)

    def cg(self, operator, right, axis=None):
        dot = (lambda a, b: np.sum(a * b)) if axis is None else (lambda a, b: np.sum(a * b, axis=axis, keepdims=True))
        s, r, p = np.zeros_like(right), right.copy(), right.copy()
        squared = dot(r, r)
        for _ in range(self.inner_iter):
            product = operator(p)
            alpha = squared / np.maximum(dot(p, product), 1e-30)
            s, r = s + alpha * p, r - alpha * product
            previous, squared = squared, dot(r, r)
            p = r + squared / np.maximum(previous, 1e-30) * p
        return s

    def fit_full(self) -> None:
        n = self.Y.shape[0]
        b = np.asarray(self.Y.mean(axis=0)).ravel()
        H = self.start(-self.Y, b)
        W = np.zeros((self.X.shape[1], self.rank), np.float32)
        A = self.X @ W
        for _ in range(self.rounds):
            G = H.T @ H
            gradient = self.XT @ (A @ G + (b @ H).astype(np.float32) - self.Y @ H) + self.reg * W
            W = W - self.cg(lambda S, G=G: self.XT @ ((self.X @ S) @ G) + self.reg * S, gradient)
            A = self.X @ W
            extended = np.column_stack([A, np.ones(n, np.float32)])
            penalty = np.diag(np.r_[np.full(self.rank, self.reg), 1e-9])
            right = self.YT @ extended
            solution = np.linalg.solve((extended.T @ extended) + penalty, right.T).T
            H, b = solution[:, :-1].astype(np.float32), solution[:, -1]
            self.objective = float(0.5 * self.Y.nnz - 0.5 * np.sum(right * solution) + 0.5 * self.reg * np.sum(W**2))

    def fit_masked(self) -> None:
        n, n_labels = self.Y.shape
        rates = np.bincount(self.labels, weights=self.targets > 0, minlength=n_labels)
        rates /= np.maximum(np.bincount(self.labels, minlength=n_labels), 1)
        b = self.loss.constant(rates).astype(np.float32)
        first = self.loss.first(self.targets, b[self.labels])
        slope = sp.csr_matrix((first, (self.rows, self.labels)), (n, n_labels)).astype(np.float32)
        H = np.column_stack([self.start(slope, None), b]).astype(np.float32)
        W = np.zeros((self.X.shape[1], self.rank), np.float32)
        for _ in range(self.rounds):
            for _ in range(1 if self.loss.quadratic else 2):  # Newton steps of W, as in tagwise
                A = np.column_stack([self.X @ W, np.ones(n, np.float32)]).astype(np.float32)
                scores = self.scores(A, H)
                first = self.loss.first(self.targets, scores)
                second = self.loss.second(self.targets, scores)
                gradient = self.XT @ self.spread(first, H)[:, : self.rank] + self.reg * W

                def curved(S, second=second, H=H):
                    moved = np.column_stack([self.X @ S, np.zeros(n, np.float32)]).astype(np.float32)
                    return self.XT @ self.spread(second * self.scores(moved, H), H)[:, : self.rank] + self.reg * S

                W = W - self.cg(curved, gradient)
            A = np.column_stack([self.X @ W, np.ones(n, np.float32)]).astype(np.float32)
            H = self.label_step(A, H)
        penalty = 0.5 * self.reg * (np.sum(W**2) + np.sum(H[:, :-1] ** 2))
        self.objective = float(self.loss.value(self.targets, self.scores(A, H)).sum() + penalty)

    def scores(self, A, H, block: int = 1 << 18):
        out = np.empty(len(self.rows), np.float32)
        for i in range(0, len(out), block):
            part = slice(i, i + block)
            out[part] = np.einsum("ij,ij->i", A[self.rows[part]], H[self.labels[part]])
        return out

    def spread(self, values, H):
        return sp.csr_matrix((values, (self.rows, self.labels)), self.Y.shape) @ H

    def label_step(self, A, H):
        penalty = np.r_[np.full(self.rank, self.reg), 1e-9].astype(np.float32)
        newton_steps = 1 if self.loss.quadratic else 3
        for _ in range(newton_steps):
            scores = self.scores(A, H)
            first = self.loss.first(self.targets, scores)
            second = self.loss.second(self.targets, scores)

            def gather(values):
                return sp.csr_matrix((values, (self.labels, self.rows)), self.Y.shape[::-1]) @ A

            def curved(S, second=second):
                return gather(second * self.scores(A, S)) + penalty * S

            H = (H - self.cg(curved, gather(first) + penalty * H, axis=1)).astype(np.float32)
        return H
