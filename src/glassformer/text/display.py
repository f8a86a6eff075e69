"""Display: how a single token is shown to people."""

from glassformer.text.kinds import byte_letters

SPACE = "▁"  # how a space in a token is shown
BYTES = {letter: byte for byte, letter in enumerate(byte_letters())}


def spelled(name: str) -> str:
    """The text of a token's name in which letters stand for bytes; bytes that are not valid text as ⟨E0 A4⟩."""
    if any(letter not in BYTES for letter in name):
        return name
    data = bytes(BYTES[letter] for letter in name)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return f"⟨{data.hex(' ').upper()}⟩"


def on_a_line(text: str) -> str:
    """The text with visible signs in place of line breaks and tabs."""
    return text.replace("\n", "⏎").replace("\r", "␍").replace("\t", "⇥")
