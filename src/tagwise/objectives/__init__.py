"""Loss + data + mask + penalty for one block of variables: value, gradient, Hessian·vector, or the exact minimiser."""
