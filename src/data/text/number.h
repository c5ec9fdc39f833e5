/* number.h - numbers from text, the same in every locale, fast where they are
 * short.
 *
 * A text is [s, end): all of it has to be the number. FL_TEXT_PAD bytes on both
 * sides of it must be readable, because it is read eight bytes at a time.
 *
 * Accepted: for floats [+-] digits [. digits] [e [+-] digits], with a digit
 * before or after the point, whose value is finite; for ids digits alone, below
 * 2^64. The bits are as strtof(), strtod() and strtoull() give them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "eight characters in a word: the first is the lowest byte");

enum { FL_TEXT_PAD = 64 };

#define FL_BYTES(c) (0x0101010101010101u * (uint64_t)(c))

/* For texts that the functions below have no short cut for. */
bool fl_parse_u64_any(const char *s, const char *end, uint64_t *out);
bool fl_parse_float_any(const char *s, const char *end, float *out);
bool fl_parse_double(const char *s, const char *end, double *out);

static inline uint64_t fl_load8(const char *p)
{
    uint64_t word;

    memcpy(&word, p, sizeof word);
    return word;
}

/* The top bit of each byte of word that is c; of bytes above the first such one
 * it may be wrong. */
static inline uint64_t fl_find_byte(uint64_t word, char c)
{
    uint64_t t = word ^ FL_BYTES((unsigned char)c);

    return (t - FL_BYTES(1)) & ~t & FL_BYTES(0x80);
}

/* The first colon of [s, end), or end; eight bytes are readable behind it. */
static inline const char *fl_find_colon(const char *s, const char *end)
{
    for (; s < end; s += 8) {
        uint64_t found = fl_find_byte(fl_load8(s), ':');

        if (found) {
            s += __builtin_ctzll(found) / 8;
            return s < end ? s : end;
        }
    }
    return end;
}

/* The last n of the eight bytes before end, 1 <= n <= 8, with zeros ('0') in
 * the place of those before them. */
static inline uint64_t fl_last_bytes(const char *end, size_t n)
{
    uint64_t keep = ~0ull << (64 - 8 * n);

    return (fl_load8(end - 8) & keep) | (FL_BYTES('0') & ~keep);
}

/* Each byte of a word of digits less '0' is below 10. */
static inline bool fl_are_digits(uint64_t y)
{
    return (((y + FL_BYTES(0x80 - 10)) | y) & FL_BYTES(0x80)) == 0;
}

/* The number that eight digits less '0' are; the first is the lowest byte. Each
 * step makes pairs: of digits, of hundreds, of ten thousands. */
static inline uint64_t fl_eight_digits(uint64_t y)
{
    y = (y * (1 + (10 << 8))) >> 8;
    y = ((y & 0x00FF00FF00FF00FFu) * (1 + (100 << 16))) >> 16;
    return ((y & 0x0000FFFF0000FFFFu) * (1 + (10000ull << 32))) >> 32;
}

/* False: it is no id, or longer than eight digits. */
static inline bool fl_parse_short_u64(const char *s, const char *end,
                                      uint64_t *out)
{
    size_t n = (size_t)(end - s);
    uint64_t y;

    if (n - 1 >= 8)
        return false;
    y = fl_last_bytes(end, n) ^ FL_BYTES('0');
    *out = fl_eight_digits(y);
    return fl_are_digits(y);
}

static inline bool fl_parse_u64(const char *s, const char *end, uint64_t *out)
{
    return fl_parse_short_u64(s, end, out) || fl_parse_u64_any(s, end, out);
}

/* Take the point, if there is one, out of a word of characters: the bytes below
 * it move up. Returns how many stood above it. */
static inline int fl_take_point(uint64_t *word)
{
    uint64_t found = fl_find_byte(*word, '.');
    uint64_t point = found & -found, below, above;

    if (!found)
        return 0;
    below = (point >> 7) - 1;
    above = ~((point << 1) - 1);
    *word = (*word & above) | (*word & below) << 8 | '0';
    return __builtin_clzll(point) / 8;
}

/* d is within four units in its last place of the number that is meant: is
 * (float)d the float nearest to that? Not sure if a number halfway between two
 * floats lies as close. */
static inline bool fl_rounds_once(double d)
{
    uint64_t bits;

    memcpy(&bits, &d, sizeof bits);
    return (bits & 0x1FFFFFFF) - (0x10000000 - 4) > 8;
}

/* False: it is no number, or not one that is this easy. */
static inline bool fl_parse_short_float(const char *s, const char *end,
                                        float *out)
{
    static const double ten_to[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7};
    bool minus = *s == '-';
    size_t n = (size_t)(end - s) - minus;
    uint64_t word, y;
    double d;
    int places;

    if (n - 1 >= 8)
        return false;
    word = fl_last_bytes(end, n);
    places = fl_take_point(&word);
    y = word ^ FL_BYTES('0');
    d = (double)(int64_t)fl_eight_digits(y) / ten_to[places];
    *out = (float)(minus ? -d : d);
    return fl_are_digits(y) && fl_rounds_once(d) && (n > 1 || end[-1] != '.');
}

static inline bool fl_parse_float(const char *s, const char *end, float *out)
{
    return fl_parse_short_float(s, end, out) || fl_parse_float_any(s, end, out);
}
