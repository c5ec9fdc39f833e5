/* text.h - a growing string. A failure to grow is kept: the text ends where it
 * was and fl_text_status() says so. Numbers are written as in the C locale,
 * whatever the host has set. */
#pragma once

#include <string.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>

#include "base/error.h"

typedef struct fl_text {
    char *chars; /* ends with a 0; NULL while empty */
    size_t length, capacity;
    fleet_status status;
} fl_text;

void fl_text_add(fl_text *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The shortest text that is read as that number. */
void fl_text_float(fl_text *t, float x);
/* A further member of a JSON object, ,"key":x with that number of digits; null
 * if x is not finite. */
void fl_text_member(fl_text *t, const char *key, double x, int digits);
void fl_text_bytes(fl_text *t, const void *bytes, size_t n);
const char *fl_text_chars(const fl_text *t); /* never NULL */
void fl_text_done(fl_text *t);

/* strtod() as in the C locale. */
double fl_text_number(const char *text, char **end);

/* vsnprintf() as in the C locale. */
int fl_format(char *out, size_t size, const char *format, va_list args)
    __attribute__((format(printf, 3, 0)));

/* Newlines, escapes of a terminal, and bytes that are no UTF-8, which a
 * stranger or a file has put into a text, are written as \n, \x1b. In place;
 * what does not fit is cut. */
enum { FL_MOST_ESCAPED = 4096 };
void fl_text_escape(char *text, size_t size);

/* Of a NULL-ended list, the name that was meant by a mistyped word: the one
 * from which it has the fewest letters that are wrong, missing, too many, or
 * swapped with the next one. NULL: none by as few as a third of the word's. */
const char *fl_text_nearest(const char *word, const char *const *names);

/* --- lists of names with commas between them ------------------------------ */

/* Is the word of n characters among them? NULL has none. */
static inline bool fl_name_list_has(const char *words, const char *word,
                                    size_t n)
{
    while (words && *words) {
        size_t length = strcspn(words, ",");

        if (length == n && memcmp(words, word, n) == 0)
            return true;
        words += length + (words[length] == ',');
    }
    return false;
}
