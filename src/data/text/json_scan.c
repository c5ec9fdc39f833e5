/* json_scan.c - the grammar of RFC 8259, byte by byte but for strings. */
#include "data/text/json_scan.h"

#include <stdint.h>
#include <string.h>

#include "data/text/number.h"

static bool scan_failed(fl_json_scan *s, const char *expected)
{
    s->expected = expected;
    return false;
}

static void pass_blanks(fl_json_scan *s)
{
    while (s->at < s->end &&
           (*s->at == ' ' || *s->at == '\t' || *s->at == '\r'))
        s->at++;
}

bool fl_json_scan_take(fl_json_scan *s, char c)
{
    pass_blanks(s);
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

/* Bytes of a word that end a string, or must not be in one: quotes,
 * backslashes, control characters. */
static uint64_t find_stops(uint64_t word)
{
    uint64_t control = (word - FL_BYTES(' ')) & ~word & FL_BYTES(0x80);

    return fl_find_byte(word, '"') | fl_find_byte(word, '\\') | control;
}

static const char *next_stop(const char *at, const char *end)
{
    for (; at < end; at += 8) {
        uint64_t found = find_stops(fl_load8(at));

        if (found) {
            at += __builtin_ctzll(found) / 8;
            return at < end ? at : end;
        }
    }
    return end;
}

static bool scan_string(fl_json_scan *s, fl_json_piece *piece)
{
    const char *at = s->at + 1;

    *piece = (fl_json_piece){.text = at, .is_string = true};
    for (;;) {
        at = next_stop(at, s->end);
        if (at < s->end && *at == '"')
            break;
        if (at == s->end || *at != '\\')
            return scan_failed(s, "a string that ends");
        piece->escaped = true;
        at += at + 1 < s->end ? 2 : 1;
    }
    piece->end = at;
    s->at = at + 1;
    return true;
}

static bool ends_word(char c)
{
    return c == ',' || c == ']' || c == '}' || c == ' ' || c == '\t' ||
           c == '\r' || c == ':' || c == '"' || c == '[' || c == '{';
}

bool fl_json_scan_piece(fl_json_scan *s, fl_json_piece *piece)
{
    pass_blanks(s);
    if (s->at < s->end && *s->at == '"')
        return scan_string(s, piece);
    *piece = (fl_json_piece){.text = s->at, .end = s->at};
    while (piece->end < s->end && !ends_word(*piece->end))
        piece->end++;
    if (piece->end == piece->text)
        return scan_failed(s, "a value");
    s->at = piece->end;
    return true;
}

bool fl_json_scan_key(fl_json_scan *s, fl_json_piece *key)
{
    pass_blanks(s);
    if (s->at == s->end || *s->at != '"')
        return scan_failed(s, "a key in quotes");
    return scan_string(s, key) && (fl_json_scan_take(s, ':') ||
                                   scan_failed(s, "a colon behind the key"));
}

bool fl_json_piece_is(const fl_json_piece *p, const char *word)
{
    const size_t size = strlen(word);

    return !p->is_string && (size_t)(p->end - p->text) == size &&
           memcmp(p->text, word, size) == 0;
}

static const char *pass_digits(const char *s, const char *end)
{
    while (s < end && *s >= '0' && *s <= '9')
        s++;
    return s;
}

/* By its characters: also one that no double holds. */
static bool is_number(const char *s, const char *end)
{
    const char *from = s += s < end && *s == '-';

    s = pass_digits(s, end);
    if (s == from || (*from == '0' && s - from > 1))
        return false;
    if (s < end && *s == '.') {
        from = ++s;
        s = pass_digits(s, end);
        if (s == from)
            return false;
    }
    if (s < end && (*s == 'e' || *s == 'E')) {
        s += s + 1 < end && (s[1] == '+' || s[1] == '-') ? 2 : 1;
        from = s;
        s = pass_digits(s, end);
        if (s == from)
            return false;
    }
    return s == end;
}

static bool skip_piece(fl_json_scan *s)
{
    fl_json_piece piece;
    const char *at;
    double x;

    if (!fl_json_scan_piece(s, &piece))
        return false;
    at = piece.text;
    if (piece.is_string || fl_json_piece_is(&piece, "null") ||
        fl_json_piece_is(&piece, "true") || fl_json_piece_is(&piece, "false") ||
        fl_parse_double(at, piece.end, &x) || is_number(at, piece.end))
        return true;
    s->at = at;
    return scan_failed(s, "a value");
}

/* Of the value that has begun last: a bit of `objects` says what it is. */
typedef struct depth {
    uint64_t objects;
    int n;
} depth;

static bool is_object(const depth *d)
{
    return d->objects >> (d->n - 1) & 1;
}

static bool open_value(fl_json_scan *s, depth *d, bool object)
{
    if (d->n == FL_JSON_DEEPEST)
        return scan_failed(s, "values at most 64 deep");
    d->objects &= ~((uint64_t)1 << d->n);
    d->objects |= (uint64_t)object << d->n;
    d->n++;
    return true;
}

/* Behind a value: all that closes, up to a comma or the end. *more: there is
 * another value. */
static bool close_values(fl_json_scan *s, depth *d, bool *more)
{
    *more = false;
    while (d->n > 0 && !*more) {
        if (fl_json_scan_take(s, ','))
            *more = true;
        else if (fl_json_scan_take(s, is_object(d) ? '}' : ']'))
            d->n--;
        else
            return scan_failed(s,
                               is_object(d) ? "a comma or }" : "a comma or ]");
    }
    return true;
}

bool fl_json_scan_skip(fl_json_scan *s)
{
    fl_json_piece key;
    depth d = {0, 0};
    bool more = true;

    while (more) {
        bool object = fl_json_scan_take(s, '{');

        if (object || fl_json_scan_take(s, '[')) {
            if (!open_value(s, &d, object))
                return false;
            if (fl_json_scan_take(s, object ? '}' : ']'))
                d.n--;
            else if (object && !fl_json_scan_key(s, &key))
                return false;
            else
                continue;
        } else if (!skip_piece(s)) {
            return false;
        }
        if (!close_values(s, &d, &more) ||
            (more && is_object(&d) && !fl_json_scan_key(s, &key)))
            return false;
    }
    return true;
}

bool fl_json_scan_end(fl_json_scan *s)
{
    pass_blanks(s);
    return s->at == s->end || scan_failed(s, "the end of the line");
}

/* --- escapes -------------------------------------------------------------- */

static bool read_hex(const char *s, const char *end, uint32_t *out)
{
    *out = 0;
    if (end - s < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        const char c = s[i];
        const int digit = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;

        if (digit < 0)
            return false;
        *out = *out << 4 | (uint32_t)digit;
    }
    return true;
}

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *to++ = (char)(0xE0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    } else {
        *to++ = (char)(0xF0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3F));
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    }
    return to;
}

/* Behind \u: four hex digits, or a pair of surrogates. */
static bool unescape_code(const char **s, const char *end, char **to)
{
    uint32_t c, low;

    if (!read_hex(*s, end, &c))
        return false;
    *s += 4;
    if (c >= 0xDC00 && c < 0xE000)
        return false;
    if (c >= 0xD800 && c < 0xDC00) {
        if (end - *s < 6 || (*s)[0] != '\\' || (*s)[1] != 'u' ||
            !read_hex(*s + 2, end, &low) || low < 0xDC00 || low >= 0xE000)
            return false;
        *s += 6;
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    }
    *to = put_utf8(*to, c);
    return true;
}

bool fl_json_unescape(const fl_json_piece *p, char *to, size_t *size)
{
    static const char escape[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char *begin = to;

    for (const char *s = p->text; s < p->end;) {
        const char *known;

        if (*s != '\\') {
            *to++ = *s++;
            continue;
        }
        if (s + 1 == p->end)
            return false;
        known = strchr(escape, s[1]);
        s += 2;
        if (s[-1] == 'u') {
            if (!unescape_code(&s, p->end, &to))
                return false;
        } else if (known && s[-1]) {
            *to++ = meant[known - escape];
        } else {
            return false;
        }
    }
    *size = (size_t)(to - begin);
    return true;
}
