# SPDX-License-Identifier: Apache-2.0
"""The package's idea of the headers is theirs: the compiler compares every struct, member by member, and every number."""
import ctypes
import os
import re
import subprocess
import unittest

from harness import SOURCE
from tsocket import _library, errors

INCLUDE = os.path.join(SOURCE, "include")
HEADERS = ("tsocket", "producer", "convert")


def header_text():
    """The headers without comments."""
    texts = []
    for name in HEADERS:
        with open(os.path.join(INCLUDE, "tsocket", name + ".h"), encoding="utf-8") as file:
            texts.append(re.sub(r"/\*.*?\*/|//[^\n]*", "", file.read(), flags=re.DOTALL))
    return "\n".join(texts)


def members(text, struct):
    """Names of a struct's members, in order: a new one may hide in what was padding before."""
    body = re.search(rf"^struct {struct} {{(.*?)^}};", text, flags=re.DOTALL | re.MULTILINE).group(1)
    return [re.search(r"(\w+)(\[[^]]*\])?\s*$", line).group(1) for line in body.split(";") if line.strip()]


def claims():
    """What must be true in C."""
    for name, struct in _library.STRUCTS.items():
        yield f"sizeof(struct {name}) == {ctypes.sizeof(struct)}"
        for member, kind in struct._fields_:
            yield f"offsetof(struct {name}, {member}) == {getattr(struct, member).offset}"
            yield f"sizeof(((struct {name} *)0)->{member}) == {ctypes.sizeof(kind)}"
    for name in ("FIELDS_MAX", "NDIM_MAX", "NAME_MAX", "TOKEN_MAX", "STAGES_MAX", "CHANNELS_MAX", "OK", "EAGAIN", "EPOCH_END",
                 "END", "ELAPPED", "EHELD", "EREFUSED", "ENOTFOUND", "EINTR"):
        yield f"TSOCKET_{name} == {getattr(_library, name)}"
    for prefix, words in (("LAST", _library.LAST), ("JOIN", _library.JOIN), ("LAG", _library.ON_LAG)):
        for word, number in words.items():
            yield f"TSOCKET_{prefix}_{word.upper().replace('-', '_')} == {number}"
    for number, dtype in _library.DTYPES.items():
        yield f"TSOCKET_{dtype.name.upper()} == {number}"
    for name, value in _library.ON_BAD.items():
        yield f"TSOCKET_BAD_{name.upper()} == {value}"


class LayoutTest(unittest.TestCase):
    def test_structs_and_numbers_are_those_of_the_headers(self):
        lines = [f"#include <tsocket/{name}.h>" for name in HEADERS]
        lines += [f'_Static_assert({claim}, "{claim}");' for claim in claims()]
        done = subprocess.run([os.environ.get("TSOCKET_CC", "cc"), "-std=c11", "-fsyntax-only", "-x", "c", "-I", INCLUDE, "-"],
                              input="\n".join(lines) + "\n", text=True, stderr=subprocess.PIPE, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_no_member_is_missing(self):
        text = header_text()
        for name, struct in _library.STRUCTS.items():
            self.assertEqual([member for member, _ in struct._fields_], members(text, name), name)

    def test_every_error_has_its_class(self):
        codes = set(re.findall(r"X\(TSOCKET_(\w+), -", header_text()))
        self.assertGreater(len(codes), 10)
        # Two are answers rather than errors: what is raised for them is not of this table.
        self.assertEqual(codes - {"EPOCH_END", "EINTR"}, set(errors.BY_CODE))


if __name__ == "__main__":
    unittest.main()
