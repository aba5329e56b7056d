"""C text from untrusted names and numbers, which can break out of neither a string nor a comment.

The text is printable ASCII. In strings, all other bytes, quotes, backslashes and question marks (trigraphs, which C99
replaces even in strings) become octal escapes of three digits, which need no terminator. In comments, every character
outside a short list becomes an underscore.
"""

from __future__ import annotations

import re

import numpy as np

from ...errors import ArgumentError, ArgumentTypeError

LONGEST_NAME = 40
_ON_A_LINE = 8  # numbers per line
LONGEST_LABEL = 500  # bytes; C99 compilers must accept strings of 4095 characters, including escapes
# Keywords of C, and of C++, which may include the header.
_KEYWORDS = """
auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while main alignas
alignof and asm bool catch class constexpr decltype delete explicit export false friend mutable namespace new noexcept not
nullptr operator or private protected public static_assert template this throw true try typeid typename using virtual
wchar_t xor
"""
# Headers of C99 and C++, without suffix: a folder on the search path would replace them by ours.
_HEADERS = """
assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal stdalign stdarg stdatomic stdbool
stddef stdint stdio stdlib stdnoreturn string tgmath threads time uchar wchar wctype
features endian byteswap alloca unistd strings malloc
"""  # last line: headers that C headers include by name in common libraries
_SELFTEST = "_selftest"  # a name with this suffix could be the self-test of another network
_STRING = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-+.,:;()[]{}=<>!#$%&'*/@^`|~")
_COMMENT = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-+.,:;()=<>%")


def check_identifier(name: object) -> str:
    """Return `name` if it is a valid prefix of C functions and files, else raise ArgumentError."""
    if not isinstance(name, str):
        raise ArgumentTypeError(f"Expected name to be a string, but got {name!r}.")
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) or name in _KEYWORDS.split() or len(name) > LONGEST_NAME:
        raise ArgumentError(
            f"Expected name to be a C identifier of at most {LONGEST_NAME} ASCII letters, digits and underscores that begins "
            f"with a letter, but got {name[: 2 * LONGEST_NAME]!r}. Pass name='network', for example."
        )
    if name.lower() in _HEADERS.split() or name.lower().endswith(_SELFTEST):
        what = "the self-test of another network" if name.lower().endswith(_SELFTEST) else "a header of C"
        raise ArgumentError(
            f"Expected an unused name, but {name!r} is the name of {what}. Pass name='network', for example."
        )
    return name


def string(text: str) -> str:
    """Return a C string literal of the UTF-8 bytes of `text`.

    Raises:
        ArgumentError: If it is too long or has a zero byte.
    """
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > LONGEST_LABEL or 0 in content:
        what = "one with a zero byte" if 0 in content else f"one of {len(content)}"
        raise ArgumentError(
            f"Expected labels of at most {LONGEST_LABEL} bytes without zero bytes, but got {what}: {text[:20]!r}. Rename it."
        )
    return '"' + "".join(chr(byte) if chr(byte) in _STRING else f"\\{byte:03o}" for byte in content) + '"'


def comment(text: str) -> str:
    """Return `text` for use in a comment: on one line, without characters that end the comment or begin another."""
    return "".join(character if character in _COMMENT else "_" for character in text[:200])


def number(value: float) -> str:
    """Return a float literal with exactly this float32 value."""
    text = f"{np.float32(value):.9g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.0f"


def array(kind: str, name: str, values: np.ndarray) -> str:
    """Return the definition of a constant array; `kind` is float or an integer type."""
    flat = np.asarray(values).reshape(-1)
    words = [number(value) for value in flat] if kind == "float" else [str(int(value)) for value in flat]
    rows = [words[i : i + _ON_A_LINE] for i in range(0, len(words), _ON_A_LINE)]
    lines = ",\n".join("    " + ", ".join(row) for row in rows)
    return f"static const {kind} {name}[{len(flat)}] = {{\n{lines}\n}};\n"
