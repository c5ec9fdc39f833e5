/* number.c - what the short cuts of number.h leave over.
 *
 * A decimal number is read as w * 10^exponent, w of at most 19 digits. Where
 * both are small the quotient or product of two doubles is the answer (Clinger,
 * "How to read floating point numbers accurately", PLDI 1990); the rest goes to
 * strtod(), as digits without a point, which no locale reads in another way.
 */
#include "data/text/number.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    EXACT_TEN = 22,  /* 10^22 is the last power of ten that is a double */
    ALL_DIGITS = 800 /* of more, only whether all are 0 counts */
};

/* Below these a word has room for eight more digits, or for one. */
static const uint64_t ROOM_FOR_EIGHT = 10000000000u,
                      ROOM_FOR_ONE = 1000000000000000000u;

static const int64_t FAR_EXPONENT = 1000000000000; /* no line is that long */

static const double ten_to[EXACT_TEN + 1] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
    1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static bool is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

/* Up to 16 digits as two words of eight. */
static bool parse_two_words(const char *s, const char *end, uint64_t *out)
{
    uint64_t low = fl_load8(end - 8) ^ FL_BYTES('0');
    uint64_t high =
        fl_last_bytes(end - 8, (size_t)(end - 8 - s)) ^ FL_BYTES('0');

    *out = fl_eight_digits(high) * 100000000 + fl_eight_digits(low);
    return fl_are_digits(low) && fl_are_digits(high);
}

bool fl_parse_u64_any(const char *s, const char *end, uint64_t *out)
{
    uint64_t low = 0;

    for (; end - s > 20 && *s == '0'; s++)
        ;
    if (end - s <= 8)
        return fl_parse_short_u64(s, end, out);
    if (end - s <= 16)
        return parse_two_words(s, end, out);
    return end - s <= 20 && parse_two_words(end - 16, end, &low) &&
           fl_parse_short_u64(s, end - 16, out) &&
           !__builtin_mul_overflow(*out, 10000000000000000u, out) &&
           !__builtin_add_overflow(*out, low, out);
}

typedef struct decimal {
    const char *first, *last; /* the digits, with a point among them */
    uint64_t w;               /* the first 19 that are not leading zeros */
    int64_t exponent;         /* of w */
    int64_t more;             /* digits that are not in w */
    bool minus;
} decimal;

/* Digits up to the first other character. */
static const char *read_digits(const char *s, const char *end, decimal *x)
{
    for (; end - s >= 8 && x->w < ROOM_FOR_EIGHT; s += 8) {
        uint64_t y = fl_load8(s) ^ FL_BYTES('0');

        if (!fl_are_digits(y))
            break;
        x->w = x->w * 100000000 + fl_eight_digits(y);
    }
    for (; s < end && is_digit(*s); s++)
        if (x->w < ROOM_FOR_ONE)
            x->w = 10 * x->w + (uint64_t)(*s - '0');
        else
            x->more++;
    return s;
}

/* Digits with at most one point among them. */
static const char *read_mantissa(const char *s, const char *end, decimal *x)
{
    const char *point;

    x->first = s;
    point = s = read_digits(s, end, x);
    if (s < end && *s == '.')
        s = read_digits(s + 1, end, x);
    x->last = s;
    x->exponent = x->more - (s > point ? s - point - 1 : 0);
    return s - x->first > (s > point) ? s : NULL;
}

static const char *read_exponent(const char *s, const char *end, decimal *x)
{
    bool minus = s < end && *s == '-';
    int64_t e = 0;

    s += s < end && (*s == '-' || *s == '+');
    if (s == end)
        return NULL;
    for (; s < end && is_digit(*s); s++)
        e = e < FAR_EXPONENT ? 10 * e + (*s - '0') : e;
    x->exponent += minus ? -e : e;
    return s;
}

static bool read_decimal(const char *s, const char *end, decimal *x)
{
    *x = (decimal){0};
    x->minus = s < end && *s == '-';
    s += s < end && (*s == '-' || *s == '+');
    s = read_mantissa(s, end, x);
    if (s && s < end && (*s == 'e' || *s == 'E'))
        s = read_exponent(s + 1, end, x);
    return s == end;
}

/* Digits without leading zeros and point, then the exponent. A digit that is
 * left out counts only by not being 0: a 1 in the end stands for all of them.
 */
static void write_plain(const decimal *x, char text[ALL_DIGITS + 40])
{
    int64_t exponent = x->exponent - x->more;
    bool rest = false;
    int n = 0;

    for (const char *s = x->first; s < x->last; s++) {
        if (*s == '.' || (n == 0 && *s == '0'))
            continue;
        if (n < ALL_DIGITS) {
            text[n++] = *s;
        } else {
            exponent++;
            rest |= *s != '0';
        }
    }
    if (rest) {
        text[n++] = '1';
        exponent--;
    }
    snprintf(text + n, 32, "e%" PRId64, exponent);
}

/* w * 10^exponent, off by less than two units in the last place; exact to half
 * a unit where w is a double. */
static double close_to(const decimal *x)
{
    double w = (double)x->w;

    return x->exponent < 0 ? w / ten_to[-x->exponent] : w * ten_to[x->exponent];
}

static bool in_table(const decimal *x)
{
    return x->exponent >= -EXACT_TEN && x->exponent <= EXACT_TEN;
}

static float to_float(const decimal *x)
{
    char text[ALL_DIGITS + 40];

    if (x->w == 0)
        return 0.0f;
    if (in_table(x)) {
        double d = close_to(x);

        if (d > 2 * FLT_MIN && d < FLT_MAX / 2 && fl_rounds_once(d))
            return (float)d;
    }
    write_plain(x, text);
    return strtof(text, NULL);
}

static double to_double(const decimal *x)
{
    char text[ALL_DIGITS + 40];

    if (x->w == 0)
        return 0.0;
    if (in_table(x) && x->more == 0 && x->w <= (uint64_t)1 << DBL_MANT_DIG)
        return close_to(x);
    write_plain(x, text);
    return strtod(text, NULL);
}

bool fl_parse_float_any(const char *s, const char *end, float *out)
{
    decimal x;
    float value;

    if (!read_decimal(s, end, &x))
        return false;
    value = to_float(&x);
    *out = x.minus ? -value : value;
    return isfinite(value);
}

bool fl_parse_double(const char *s, const char *end, double *out)
{
    decimal x;
    double value;

    if (!read_decimal(s, end, &x))
        return false;
    value = to_double(&x);
    *out = x.minus ? -value : value;
    return isfinite(value);
}
