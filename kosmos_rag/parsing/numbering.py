"""Write the numbers of list items as they are printed."""

_ROMAN = (
    *((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc")),
    *((50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i")),
)
_LARGEST_ROMAN = 3_999


def format_number(number: int, style: str) -> str:
    """Format a number in a style.

    `a`, `A`, `i` and `I` as in HTML, else in digits.
    """
    if style.lower() == "a" and number > 0:
        return _same_case(_letters(number), style)
    if style.lower() == "i" and 0 < number <= _LARGEST_ROMAN:
        return _same_case(_roman(number), style)
    return str(number)


def _same_case(text: str, style: str) -> str:
    return text.upper() if style.isupper() else text


def _letters(number: int) -> str:
    letters = ""
    while number:
        number, letter = divmod(number - 1, 26)
        letters = chr(ord("a") + letter) + letters
    return letters


def _roman(number: int) -> str:
    digits = ""
    for value, digit in _ROMAN:
        digits += digit * (number // value)
        number %= value
    return digits
