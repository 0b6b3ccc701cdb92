"""Model folders that are not what they say, with right digests wherever an attacker could make them so."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from systems import needs_pipes

from tagwise.exceptions import InvalidInputError, ModelFormatError
from tagwise.persistence import ModelRecord, folder, read_model, strict_json, tensors, write_model


def refuse(model, words):
    with pytest.raises(ModelFormatError, match=words) as caught:
        read_model(model.path)
    assert str(model.path) in str(caught.value)


def test_the_helpers_leave_a_valid_model_valid(model, same_record):
    assert same_record(model.record(), read_model(model.path))
    model.write_manifest(model.manifest())
    model.write_payload(*model.payload())
    model.set_array("tensors/S/data", [1.0, 2.0, 3.0])
    assert same_record(model.record(), read_model(model.path))


# --- the folder itself


def test_missing_folder(model):
    shutil.rmtree(model.path)
    refuse(model, "does not exist")


def test_empty_folder(model):
    shutil.rmtree(model.path)
    model.path.mkdir()
    refuse(model, r"no manifest\.json")


def test_path_is_a_file(model):
    shutil.rmtree(model.path)
    model.path.write_text("x")
    refuse(model, "path is a file")


def test_manifest_is_a_folder(model):
    model.manifest_path.unlink()
    model.manifest_path.mkdir()
    refuse(model, "manifest.json (must be a regular file|cannot be read)")


def test_manifest_is_a_link(model, tmp_path):
    model.manifest_path.rename(tmp_path / "elsewhere.json")
    model.manifest_path.symlink_to(tmp_path / "elsewhere.json")
    refuse(model, "links and special files are refused")


@needs_pipes
def test_manifest_is_a_pipe(model):
    model.manifest_path.unlink()
    os.mkfifo(model.manifest_path)
    refuse(model, "regular file")


def test_manifest_is_too_large_to_be_read(model):
    os.truncate(model.manifest_path, 2**40)  # a hole: the file takes no room
    refuse(model, "1,099,511,627,776 bytes")


def test_unreadable_manifest(model, monkeypatch):
    def refuse_to_open(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(folder.os, "open", refuse_to_open)
    refuse(model, "cannot be read .Permission denied")


def test_payload_missing(model):
    model.payload_path.unlink()
    refuse(model, "tensors that manifest.json names are missing")


def test_payload_is_a_link(model, tmp_path):
    payload = model.payload_path
    payload.rename(tmp_path / "elsewhere")
    payload.symlink_to(tmp_path / "elsewhere")
    refuse(model, "links and special files are refused")


@needs_pipes
def test_payload_is_a_pipe(model):
    payload = model.payload_path
    payload.unlink()
    os.mkfifo(payload)
    refuse(model, "special files are refused")


def test_payload_is_a_folder(model):
    payload = model.payload_path
    payload.unlink()
    payload.mkdir()
    refuse(model, "must be a regular file")


@pytest.mark.parametrize("change", [-1, 1])
def test_payload_of_another_length(model, change):
    os.truncate(model.payload_path, model.payload_path.stat().st_size + change)
    refuse(model, "incomplete or changed")


# --- the manifest as text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b"[]", "not a model of tagwise"),
        (b"null", "not a model of tagwise"),
        (b'"tagwise-model"', "not a model of tagwise"),
        (b"{}", "not a model of tagwise"),
        (b'{"format": "other"}', "not a model of tagwise"),
        (b'{"format": ["tagwise-model"]}', "not a model of tagwise"),
        (b"\xff\xfe{}", "not UTF-8"),
        (b'{"a": "\xc3\x28"}', "not UTF-8"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b"{} {}", "not valid JSON"),
        (b'{"a": 1,}', "not valid JSON"),
        (b'{"a": "\x00"}', "not valid JSON"),
        (b"[" * 200_000, "nested too deep"),
        (b"[" * 200_000 + b"]" * 200_000, "nested too deep"),
        (b'{"a":' * 200_000, "nested too deep"),
        (b'{"a": 1, "b": 2, "a": 1}', "key 'a' twice"),
        (b'{"a": {"b": 1, "b": 2}}', "key 'b' twice"),
        (b'{"a": NaN}', "holds NaN"),
        (b'{"a": Infinity}', "holds Infinity"),
        (b'{"a": [-Infinity]}', "holds -Infinity"),
        (b'{"a": 1e999}', "too large for a 64-bit float"),
        (b'{"a": -1e999}', "too large for a 64-bit float"),
        (b'{"a": ' + b"9" * 1_000_000 + b"}", "integer of 1,000,000 digits"),
        (b'{"a": -' + b"9" * 100 + b"}", "integer of 101 digits"),
    ],
)
def test_manifest_text(model, content, words):
    model.manifest_path.write_bytes(content)
    refuse(model, words)


def test_manifest_cut_off(model):
    os.truncate(model.manifest_path, model.manifest_path.stat().st_size // 2)
    refuse(model, "perhaps cut off")


def test_manifest_edited_by_hand(model):
    text = model.manifest_path.read_text(encoding="utf-8")
    model.manifest_path.write_text(text.replace('"rank": 2', '"rank": 3'), encoding="utf-8")
    refuse(model, "damaged or edited")


def test_manifest_digest_written_with_escapes(model):
    text = model.manifest_path.read_text(encoding="utf-8")
    digest = model.manifest()["manifest_sha256"]
    escaped = "".join(f"\\u{ord(digit):04x}" for digit in digest)
    model.manifest_path.write_text(text.replace(digest, escaped), encoding="utf-8")
    refuse(model, "damaged or edited")


# --- the fields of the manifest


def put(*path, value):
    """A change of the manifest: set the field at a path of keys."""

    def change(fields):
        for key in path[:-1]:
            fields = fields[key]
        fields[path[-1]] = value

    return change


def drop(*path):
    def change(fields):
        for key in path[:-1]:
            fields = fields[key]
        del fields[path[-1]]

    return change


def deep(depth):
    value = 0
    for _ in range(depth):
        value = [value]
    return value


W, S, DIGEST = ("tensors", "W"), ("tensors", "S"), "0" * 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("format_version", value=2), "format version 2 .*Upgrade tagwise"),
        (put("format_version", value=10**19), "Upgrade tagwise"),
        (put("format_version", value=0), "format_version must be a positive integer"),
        (put("format_version", value=True), "format_version must be a positive integer"),
        (put("format_version", value="1"), "format_version must be a positive integer"),
        (put("format_version", value=1.0), "format_version must be a positive integer"),
        (drop("format_version"), "format_version must be a positive integer"),
        (put("tagwise_version", value=None), "tagwise_version must be"),
        (put("tagwise_version", value="9" * 101), "tagwise_version must be"),
        (put("tagwise_version", value="1\x1b[2J"), "tagwise_version must be printable"),
        (drop("values"), "lacks the key 'values'"),
        (drop("label_names"), "lacks the key 'label_names'"),
        (put("extra", value=1), "unknown key 'extra'"),
        (put("manifest_sha256", value=DIGEST), "damaged or edited"),
        (put("manifest_sha256", value="f" * 63), "manifest_sha256 must be 64 digits"),
        (put("manifest_sha256", value=None), "manifest_sha256 must be 64 digits"),
        (put("class", value=3), "class must be the name"),
        (put("class", value=""), "class must be the name"),
        (put("class", value="os.system"), "class must be the name"),
        (put("class", value="A" * 101), "class must be the name"),
        (put("class", value="LEML\n"), "class must be the name"),
        (put("parameters", value=[]), "parameters must be an object"),
        (put("values", value="x"), "values must be an object"),
        (put("tensors", value=[]), "tensors must be an object"),
        (put("arrays", value={}), "arrays must be a list"),
        (put("label_names", value="abc"), "label_names must be null or a list"),
        (put("label_names", value=["a", 1]), "label_names must be null or a list"),
        (put("label_names", value=["\ud800"]), "label_names must be .* Unicode"),
        (put("payload", value=None), "payload must name a file"),
        (put("payload", value="x"), "payload must be an object"),
        (put("payload", "file", value="../outside.safetensors"), "payload file must be a plain name"),
        (put("payload", "file", value="/etc/passwd"), "payload file must be a plain name"),
        (put("payload", "file", value="manifest.json"), "payload file must be a plain name"),
        (put("payload", "file", value=".."), "payload file must be a plain name"),
        (
            put("payload", "file", value=f"tensors-{'0' * 32}.safetensors\n"),
            "payload file must be a plain name",
        ),
        (
            put("payload", "file", value=f"a/tensors-{'0' * 32}.safetensors"),
            "payload file must be a plain name",
        ),
        (put("payload", "file", value=f"tensors-{'0' * 32}.safetensors"), "are missing"),
        (put("payload", "file", value=7), "payload file must be a plain name"),
        (put("payload", "size", value=-1), "payload size must be"),
        (put("payload", "size", value=1.5), "payload size must be"),
        (put("payload", "size", value=2**62), "incomplete or changed"),
        (put("payload", "extra", value=0), "payload has the unknown key"),
        (put("tensors", value={}), "'tensors/.*', which the manifest does not list"),
        (put("tensors", "", value={}), "tensors has a name that is empty"),
        (put("tensors", "a/b", value={}), "tensors has a name .* contains '/'"),
        (put("tensors", "a\nb", value={}), "tensors has a name .* unprintable"),
        (put("tensors", "x" * 201, value={}), "tensors has a name .* too long"),
        (put(*W, value=3), "tensor 'W' must be an object whose kind"),
        (put(*W, "kind", value="object"), "tensor 'W' must be an object whose kind"),
        (put(*W, "kind", value=["dense"]), "tensor 'W' must be an object whose kind"),
        (put(*W, "kind", value="csr"), "tensor 'W' lacks the key"),
        (put(*W, "file", value="x"), "tensor 'W' has the unknown key 'file'"),
        (drop(*W, "dtype"), "tensor 'W' lacks the key 'dtype'"),
        (put(*W, "dtype", value="object"), "dtype of tensor 'W' must be one of"),
        (put(*W, "dtype", value="complex64"), "dtype of tensor 'W' must be one of"),
        (put(*W, "dtype", value="<f4"), "dtype of tensor 'W' must be one of"),
        (put(*W, "dtype", value=["float32"]), "dtype of tensor 'W' must be one of"),
        (put(*W, "dtype", value="int32"), "the manifest says int32"),
        (put(*W, "shape", value=[3, 2]), r"the manifest says float32 of shape \[3, 2\]"),
        (put(*W, "shape", value=[6]), r"the manifest says float32 of shape \[6\]"),
        (put(*W, "shape", value=6), "shape of tensor 'W' must consist of integers"),
        (put(*W, "shape", value=[2, -3]), "shape of tensor 'W' must consist of integers"),
        (put(*W, "shape", value=[2.0, 3]), "shape of tensor 'W' must consist of integers"),
        (put(*W, "shape", value=[True, 6]), "shape of tensor 'W' must consist of integers"),
        (put(*W, "shape", value=[2**63]), "shape of tensor 'W' must consist of integers"),
        (put(*W, "shape", value=[2**32, 2**32]), "shape of tensor 'W' is too large"),
        (put(*W, "shape", value=[0, 2**62]), "shape of tensor 'W' is too large"),
        (put(*W, "shape", value=[1] * 33), "33 dimensions"),
        (put(*W, "sha256", value=DIGEST), "do not have the sha256"),
        (put(*W, "sha256", value="F" * 64), "sha256 of tensor 'W' must be 64 digits"),
        (put(*W, "sha256", value={}), "sha256 of tensor 'W' must be 64 digits"),
        (
            put("tensors", "V", value={"kind": "dense", "dtype": "bool", "shape": [0], "sha256": DIGEST}),
            "lacks 't",
        ),
        (put(*S, "index_dtype", value="int16"), "index_dtype of tensor 'S' must be one of"),
        (put(*S, "index_dtype", value="int64"), "the manifest says int64"),
        (put(*S, "dtype", value="float16"), "no sparse matrices of float16"),
        (put(*S, "shape", value=[3]), "a CSR matrix has two"),
        (put(*S, "shape", value=[3, 2, 1]), "a CSR matrix has two"),
        (put(*S, "shape", value=[4, 2]), "the manifest says int32"),
        (put(*S, "shape", value=[2**62, 2]), "shape of tensor 'S' is too large"),
        (put(*S, "shape", value=[2**63 - 1, 2]), "shape of tensor 'S' must consist of integers"),
        (put(*S, "shape", value=[3, 1]), "index lies outside the 1 columns"),
        (put(*S, "nnz", value=2), "the manifest says float64"),
        (put(*S, "nnz", value=2**61), "nnz of tensor 'S' is too large"),
        (put(*S, "nnz", value=-1), "nnz of tensor 'S' must consist of integers"),
        (put(*S, "sha256", value=DIGEST), "sha256 of tensor 'S' must be an object"),
        (put(*S, "sha256", "indptr", value=DIGEST), "do not have the sha256"),
        (drop(*S, "sha256", "data"), "sha256 of tensor 'S' lacks the key 'data'"),
        (put("arrays", 0, value=None), r"arrays\[0\] must be an object whose kind"),
        (put("arrays", value=[]), "refers|starts with|does not list"),
        (
            put("parameters", "weight", value={"$array": 1}),
            r"parameters\['weight'\] has a key that starts with \$",
        ),
        (put("parameters", "weight", value={"$array": -1}), r"parameters\['weight'\] has a key"),
        (put("parameters", "weight", value={"$array": False}), r"parameters\['weight'\] has a key"),
        (put("parameters", "weight", value={"$array": 0, "x": 1}), r"parameters\['weight'\] has a key"),
        (put("parameters", "weight", value=1.0), "neither parameters nor values refer to"),
        (put("parameters", "again", value={"$array": 0}), "array 0, which another value has"),
        (put("parameters", "tol", value={"$float": "1.5"}), "not a valid .float"),
        (put("parameters", "tol", value={"$float": ["nan"]}), "not a valid .float"),
        (put("parameters", "range", value={"$tuple": 3}), "not a valid .float"),
        (put("parameters", "range", value={"$call": "os.system"}), "not a valid .float"),
        (put("parameters", value={"$tuple": [{"$array": 0}]}), "must be plain objects"),
        (put("parameters", "rank", value=10**19 * 9), "more than 64 bits"),
        (put("values", "deep", value=deep(65)), r"values\['deep'\].* nested more than 64"),
        (put("values", "deep", value=deep(700)), "nested"),
        (put("values", "text", value="\udcff"), r"values\['text'\] is not Unicode"),
        (put("values", "\udcff", value=1), "key that is not Unicode"),
    ],
)
def test_manifest_field(model, change, words):
    fields = model.manifest()
    change(fields)
    model.write_manifest(fields)
    refuse(model, words)


def test_payload_named_where_there_are_no_tensors(model):
    fields = model.manifest()
    fields["tensors"], fields["arrays"], fields["parameters"] = {}, [], {}
    model.write_manifest(fields)
    refuse(model, "be null if there are none")


def test_nesting_beyond_the_interpreter_in_a_field(model):
    model.replace_text('"n_iter_": 5', '"n_iter_": ' + "[" * 100_000 + "]" * 100_000)
    refuse(model, "nested too deep")


# --- values inside tensors


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("tensors/S/indptr", np.array([1, 1, 2, 3], np.int32), "indptr starts with 1"),
        ("tensors/S/indptr", np.array([0, 2, 1, 3], np.int32), "indptr decreases"),
        ("tensors/S/indptr", np.array([0, 1, 2, 2], np.int32), "indptr ends with 2"),
        ("tensors/S/indptr", np.array([0, 1, 2, 2**31 - 1], np.int32), "indptr ends with 2147483647"),
        ("tensors/S/indptr", np.array([0, -5, 2, 3], np.int32), "indptr decreases"),
        ("tensors/S/indices", np.array([1, 0, 2], np.int32), "outside the 2 columns"),
        ("tensors/S/indices", np.array([1, -1, 1], np.int32), "outside the 2 columns"),
        ("tensors/flags", np.array([1, 2], np.uint8), "bytes other than 0 and 1"),
    ],
)
def test_tensor_values(model, name, values, words):
    model.set_array(name, values)
    refuse(model, words)


# --- the safetensors file


def test_flipped_bit_in_a_tensor(model):
    header, data = model.payload()
    model.write_payload(header, bytes([data[0] ^ 1]) + data[1:])
    refuse(model, "do not have the sha256")


def test_payload_empty(model):
    model.payload_path.write_bytes(b"")
    fields = model.manifest()
    fields["payload"]["size"] = 0
    model.write_manifest(fields)
    refuse(model, "header does not fit")


@pytest.mark.parametrize("length", [2**64 - 1, 2**63, 2**40, 10_000])
def test_header_longer_than_the_file(model, length):
    header, data = model.payload()
    model.write_payload(header, data, header_length=length)
    refuse(model, "header does not fit")


def test_header_of_a_giant_file(model):
    header, data = model.payload()
    model.write_payload(header, data, header_length=2**33)
    os.truncate(model.payload_path, 2**40)
    fields = model.manifest()
    fields["payload"]["size"] = 2**40
    model.write_manifest(fields)
    refuse(model, "header does not fit")


@pytest.mark.parametrize(
    "header",
    [b"", b"{", b"[]", b"null", b"\xff" * 20, b'{"a":' * 5000, b"[" * 100_000, b'{"x": {"dtype": "F32"}}'],
)
def test_header_that_is_no_table(model, header):
    _, data = model.payload()
    model.write_payload(header, data)
    refuse(model, "lacks" if header.endswith(b"}}") else "not a valid safetensors file: its header")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("dtype", "I32", "as I32 of shape"),
        ("dtype", "F16", "but the manifest says float32"),
        ("dtype", "BF16", "but the manifest says float32"),
        ("dtype", "PICKLE", "but the manifest says float32"),
        ("dtype", 7, "but the manifest says float32"),
        ("shape", [3, 2], r"as F32 of shape \[3, 2\]"),
        ("shape", [2, 4], "but the manifest says float32"),
        ("shape", [2**62, 2**62], "but the manifest says float32"),
        ("shape", [-2, -3], "but the manifest says float32"),
        ("shape", "x", "but the manifest says float32"),
        ("data_offsets", [0, 24], "not a valid safetensors"),
        ("data_offsets", [24, 0], "not a valid safetensors"),
        ("data_offsets", [2**63, 2**63 + 24], "not a valid safetensors"),
        ("data_offsets", [-24, 0], "not a valid safetensors"),
        ("data_offsets", None, "not a valid safetensors"),
        ("extra", 1, "not a valid safetensors"),
    ],
)
def test_header_field(model, field, value, words):
    header, data = model.payload()
    header["tensors/W"][field] = value
    model.write_payload(header, data)
    refuse(model, words)


def test_tensors_exchanged_under_their_names(model):
    header, data = model.payload()
    header["tensors/S/data"], header["arrays/0"] = header["arrays/0"], header["tensors/S/data"]
    model.write_payload(header, data)
    refuse(model, "the manifest says float64")


def test_renamed_tensor(model):
    header, data = model.payload()
    header["tensors/V"] = header.pop("tensors/W")
    model.write_payload(header, data)
    refuse(model, "lacks 'tensors/W'")


def test_bytes_after_the_tensors(model):
    header, data = model.payload()
    model.write_payload(header, data + b"hidden")
    refuse(model, "not a valid safetensors")


# --- files that change while they are read, and manifests made to exhaust the reader


def test_tensors_cut_off_while_they_are_read(tmp_path, monkeypatch):
    """In 0.1.0 the file was mapped into memory, and the process ended with SIGBUS."""
    write_model(tmp_path / "m", ModelRecord("LEML", tensors={"W": np.zeros(10**6)}))
    (payload,) = (tmp_path / "m").glob("*.safetensors")
    read_header = tensors._read_header

    def cut_off_behind_the_header(*arguments):
        found = read_header(*arguments)
        os.truncate(payload, 4000)
        return found

    monkeypatch.setattr(tensors, "_read_header", cut_off_behind_the_header)
    with pytest.raises(ModelFormatError, match="became shorter while it was read"):
        read_model(tmp_path / "m")


def test_a_folder_replaced_while_it_is_read(tmp_path, monkeypatch):
    """A reader between the two files of a folder finds the other model, whole."""
    for name, number in (("m", 1.0), ("other", 2.0)):
        write_model(tmp_path / name, ModelRecord("LEML", tensors={"W": np.full(3, number)}))
    read_payload, replaced = folder.read_payload, []

    def replace_first(*arguments, **options):
        if not replaced:
            (tmp_path / "m").rename(tmp_path / "aside")
            (tmp_path / "other").rename(tmp_path / "m")
            replaced.append(True)
        return read_payload(*arguments, **options)

    monkeypatch.setattr(folder, "read_payload", replace_first)
    assert (read_model(tmp_path / "m").tensors["W"] == 2).all()


@pytest.mark.parametrize("content", [b"[],", b"{},", b"0,", b"[", b"[[],0],"])
def test_manifest_of_millions_of_items(model, content):
    """In 0.1.0, 240 MB of lists took minutes and gigabytes."""
    model.manifest_path.write_bytes(b"[" + content * (30 * 2**20 // len(content)) + b"0]")
    refuse(model, r"holds [0-9,]+ lists, objects and numbers; 1,000,000 are allowed")


def test_manifest_larger_than_its_tensors(model):
    with model.manifest_path.open("r+b") as stream:
        stream.truncate(33 * 2**20)
    refuse(model, r"has 34,603,008 bytes; 33,554,432 are allowed, or as many as the tensors' file has")


def test_names_may_be_many_and_full_of_signs(tmp_path):
    names = [f"[{{,{number},}}] \\" for number in range(300_000)]
    write_model(tmp_path / "m", ModelRecord("LEML", label_names=names))
    assert read_model(tmp_path / "m").label_names == names


def test_quotes_without_end_take_linear_time(model):
    model.manifest_path.write_bytes(b"," * 2**20 + b'"' + b'\\"' * 2**22)
    refuse(model, "lists, objects and numbers")


def test_lists_that_could_not_be_read_are_not_saved(tmp_path, monkeypatch):
    for module in (folder, strict_json):
        monkeypatch.setattr(module, "MAX_ITEMS", 1000)
    with pytest.raises(InvalidInputError, match=r"lists, objects and numbers, more than the allowed"):
        write_model(tmp_path / "m", ModelRecord("LEML", values={"history": [0] * 1001}))
    assert not (tmp_path / "m").exists()
