/* json_syntax.c - a text read by the grammar of RFC 8259, up to its first
 * fault. */
#include "base/json/json_syntax.h"

#include <string.h>

enum { MOST_DEPTH = 1000 }; /* as cJSON's */

typedef struct scan {
    const char *at, *end;
    const char *expected; /* at `at`; NULL: no fault yet */
} scan;

static bool fail(scan *s, const char *expected)
{
    s->expected = expected;
    return false;
}

static bool is_at(const scan *s, const char *any)
{
    return s->at < s->end && *s->at && strchr(any, *s->at);
}

static bool take_any(scan *s, const char *any)
{
    bool there = is_at(s, any);

    s->at += there;
    return there;
}

static void skip_blanks(scan *s)
{
    while (take_any(s, " \t\r\n"))
        ;
}

/* --- values that hold no other one ---------------------------------------- */

static bool read_escape(scan *s)
{
    const char *begin = s->at++;
    int digits = 0;

    if (take_any(s, "\"\\/bfnrt"))
        return true;
    if (take_any(s, "u"))
        while (digits < 4 && take_any(s, "0123456789abcdefABCDEF"))
            digits++;
    if (digits == 4)
        return true;
    s->at = begin;
    return fail(s, "an escape such as \\n, \\\", \\\\, or \\u and four digits");
}

static bool read_string(scan *s)
{
    const char *begin = s->at++;

    while (s->at < s->end && *s->at != '"') {
        if (*s->at != '\\')
            s->at++;
        else if (!read_escape(s))
            return false;
    }
    if (take_any(s, "\""))
        return true;
    s->at = begin;
    return fail(s, "a string that ends: it has no second \"");
}

static bool read_digits(scan *s)
{
    if (!is_at(s, "0123456789"))
        return fail(s, "a digit");
    while (take_any(s, "0123456789"))
        ;
    return true;
}

static bool read_number(scan *s)
{
    take_any(s, "-");
    if (!take_any(s, "0") && !read_digits(s))
        return false;
    if (take_any(s, ".") && !read_digits(s))
        return false;
    if (!take_any(s, "eE"))
        return true;
    take_any(s, "+-");
    return read_digits(s);
}

static bool read_word(scan *s)
{
    static const char *const words[] = {"true", "false", "null"};

    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);

        if ((size_t)(s->end - s->at) >= n && memcmp(s->at, words[i], n) == 0) {
            s->at += n;
            return true;
        }
    }
    if (is_at(s, "/#"))
        return fail(s, "a value (JSON has no comments)");
    if (is_at(s, "'"))
        return fail(s, "a value (strings have double quotes)");
    return fail(s, "a value");
}

/* --- values that do ------------------------------------------------------- */

static bool read_value(scan *s, int depth);

static bool read_member(scan *s, int depth, const char *expected)
{
    skip_blanks(s);
    if (!is_at(s, "\""))
        return fail(s,
                    is_at(s, "/#") ? "a key (JSON has no comments)" : expected);
    if (!read_string(s))
        return false;
    skip_blanks(s);
    return take_any(s, ":") ? read_value(s, depth)
                            : fail(s, "':' after the key");
}

static bool read_object(scan *s, int depth)
{
    const char *expected = "a key in double quotes, or '}'";

    s->at++;
    skip_blanks(s);
    if (take_any(s, "}"))
        return true;
    do {
        if (!read_member(s, depth, expected))
            return false;
        skip_blanks(s);
        expected = "a key in double quotes after the ','";
    } while (take_any(s, ","));
    return take_any(s, "}") || fail(s, "',' or '}'");
}

static bool read_array(scan *s, int depth)
{
    s->at++;
    skip_blanks(s);
    if (take_any(s, "]"))
        return true;
    do {
        skip_blanks(s);
        if (is_at(s, "]"))
            return fail(s, "a value after the ','");
        if (!read_value(s, depth))
            return false;
        skip_blanks(s);
    } while (take_any(s, ","));
    return take_any(s, "]") || fail(s, "',' or ']'");
}

static bool read_value(scan *s, int depth)
{
    skip_blanks(s);
    if (depth == MOST_DEPTH && is_at(s, "{["))
        return fail(s, "at most 1000 values, each inside the one before");
    if (is_at(s, "{"))
        return read_object(s, depth + 1);
    if (is_at(s, "["))
        return read_array(s, depth + 1);
    if (is_at(s, "\""))
        return read_string(s);
    return is_at(s, "-0123456789") ? read_number(s) : read_word(s);
}

bool fl_json_find_fault(const char *text, size_t size, fl_json_place *fault)
{
    scan s = {.at = text, .end = text + size};

    if (read_value(&s, 0))
        return false;
    *fault = (fl_json_place){s.at, s.expected};
    return true;
}
