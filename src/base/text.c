/* text.c - a growing string. */
#define _GNU_SOURCE
#include "base/text.h"

#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* The C locale, once for the process; never freed. */
static locale_t c_locale(void)
{
    static locale_t c; /* a race makes two equal ones */
    locale_t now = __atomic_load_n(&c, __ATOMIC_ACQUIRE);

    if (!now) {
        now = newlocale(LC_ALL_MASK, "C", (locale_t)0);
        __atomic_store_n(&c, now, __ATOMIC_RELEASE);
    }
    return now;
}

double fl_text_number(const char *text, char **end)
{
    locale_t c = c_locale(), host;
    double x;

    if (!c)
        return strtod(text, end);
    host = uselocale(c);
    x = strtod(text, end);
    uselocale(host);
    return x;
}

int fl_format(char *out, size_t size, const char *format, va_list args)
{
    locale_t c = c_locale(), host;
    int n;

    if (!c)
        return vsnprintf(out, size, format, args);
    host = uselocale(c);
    n = vsnprintf(out, size, format, args);
    uselocale(host);
    return n;
}

static bool make_room(fl_text *t, size_t n)
{
    if (t->status != FLEET_OK)
        return false;
    t->status = fl_grow(&t->chars, &t->capacity, t->length + n + 1, 1);
    return t->status == FLEET_OK;
}

void fl_text_add(fl_text *t, const char *format, ...)
{
    va_list args, again;
    int n;

    va_start(args, format);
    va_copy(again, args);
    n = fl_format(NULL, 0, format, args);
    if (n > 0 && make_room(t, (size_t)n)) {
        fl_format(t->chars + t->length, (size_t)n + 1, format, again);
        t->length += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

static int format(char *out, size_t size, const char *words, ...)
{
    va_list args;
    int n;

    va_start(args, words);
    n = fl_format(out, size, words, args);
    va_end(args);
    return n;
}

void fl_text_float(fl_text *t, float x)
{
    locale_t c = c_locale();
    char digits[32];

    for (int n = 6; n <= 9; n++) { /* 9 are enough for every float */
        format(digits, sizeof digits, "%.*g", n, (double)x);
        if (c && strtof_l(digits, NULL, c) == x)
            break;
    }
    fl_text_add(t, "%s", digits);
}

void fl_text_member(fl_text *t, const char *key, double x, int digits)
{
    if (isfinite(x))
        fl_text_add(t, ",\"%s\":%.*g", key, digits, x);
    else
        fl_text_add(t, ",\"%s\":null", key);
}

void fl_text_bytes(fl_text *t, const void *bytes, size_t n)
{
    if (n == 0 || !make_room(t, n))
        return;
    memcpy(t->chars + t->length, bytes, n);
    t->length += n;
    t->chars[t->length] = 0;
}

const char *fl_text_chars(const fl_text *t)
{
    return t->chars ? t->chars : "";
}

void fl_text_done(fl_text *t)
{
    fl_free(t->chars);
    *t = (fl_text){0};
}

/* --- bytes that do not belong on a terminal ------------------------------- */

/* Bytes of the character at c, if it may be shown; 0: its first byte is to be
 * escaped. C1, which some terminals obey, is 0xC2 0x80 to 0x9F. */
static size_t shown(const unsigned char *c)
{
    const size_t n = *c < 0x80   ? 1
                     : *c < 0xC2 ? 0
                     : *c < 0xE0 ? 2
                     : *c < 0xF0 ? 3
                     : *c < 0xF5 ? 4
                                 : 0;

    if (n == 1)
        return (*c >= ' ' && *c != 0x7F) || *c == '\t';
    for (size_t i = 1; i < n; i++)
        if ((c[i] & 0xC0) != 0x80)
            return 0;
    return *c == 0xC2 && c[1] < 0xA0 ? 0 : n;
}

static size_t escape_byte(unsigned char c, char out[5])
{
    if (c == '\n' || c == '\r')
        return (size_t)snprintf(out, 5, "\\%c", c == '\n' ? 'n' : 'r');
    return (size_t)snprintf(out, 5, "\\x%02x", c);
}

static bool is_clean(const char *text)
{
    size_t n;

    for (const char *c = text; *c; c += n)
        if (!(n = shown((const unsigned char *)c)))
            return false;
    return true;
}

void fl_text_escape(char *text, size_t size)
{
    char out[FL_MOST_ESCAPED], code[5];
    size_t used = 0;

    if (is_clean(text))
        return;
    if (size > sizeof out)
        size = sizeof out;
    for (const char *c = text; *c;) {
        size_t n = shown((const unsigned char *)c);
        const char *from = n ? c : code;
        size_t length = n ? n : escape_byte((unsigned char)*c, code);

        if (used + length >= size)
            break;
        memcpy(out + used, from, length);
        used += length;
        c += n ? n : 1;
    }
    out[used] = 0;
    memcpy(text, out, used + 1);
}

/* --- what was meant ------------------------------------------------------- */

enum { MOST_LETTERS = 64 };

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Optimal string alignment, of words of up to MOST_LETTERS. */
static int edits(const char *a, const char *b)
{
    int n = (int)strlen(a), m = (int)strlen(b);
    int row[3][MOST_LETTERS + 1];

    for (int j = 0; j <= m; j++)
        row[0][j] = j;
    for (int i = 1; i <= n; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3];
        const int *before = row[(i + 1) % 3];

        now[0] = i;
        for (int j = 1; j <= m; j++) {
            now[j] = least(least(last[j], now[j - 1]) + 1,
                           last[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

const char *fl_text_nearest(const char *word, const char *const *names)
{
    const char *nearest = NULL;
    size_t n = strlen(word);
    int fewest = (int)n / 3 + 1;

    if (n > MOST_LETTERS)
        return NULL;
    for (; *names; names++) {
        int k = strlen(*names) <= MOST_LETTERS ? edits(word, *names) : fewest;

        if (k < fewest) {
            fewest = k;
            nearest = *names;
        }
    }
    return nearest;
}
