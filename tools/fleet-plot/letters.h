/* letters.h - the letters of pictures, made of lines, so that a picture needs
 * no font and is the same everywhere. */
#pragma once

/* Units: a letter is 4 wide, LETTER_WIDTH with the room behind it; capitals
 * stand on LETTER_BASE and reach up to 0, small ones reach down to 8. */
enum { LETTER_WIDTH = 6, LETTER_BASE = 6 };

/* Its strokes with a space between them, each a row of points: a digit for how
 * far right, one for how far down. Of what is no printable ASCII a box. */
const char *letter_strokes(unsigned char letter);
