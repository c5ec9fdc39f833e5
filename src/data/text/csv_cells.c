/* csv_cells.c - cells of a line. Quotes are as in RFC 4180: a cell that begins
 * with one goes on to the next that is not doubled, whatever stands between. */
#include "data/text/csv_cells.h"

#include "base/memory.h"

enum { PIECE = 1024 };

static fleet_status add_cell(fl_csv_cells *c, const char *text, const char *end)
{
    if (c->n == c->capacity)
        FL_TRY(fl_grow(&c->cell, &c->capacity, c->n + 1, sizeof *c->cell));
    c->cell[c->n++] = (fl_cell){text, end};
    return FLEET_OK;
}

static fleet_status add_trimmed(fl_csv_cells *c, const char *text,
                                const char *end)
{
    while (text < end && fl_is_blank(*text))
        text++;
    while (text < end && fl_is_blank(end[-1]))
        end--;
    return add_cell(c, text, end);
}

/* No quotes: the separators are all there is. */
static fleet_status cut_plain(fl_csv_cells *c, const fl_kernels *k,
                              const char *text, size_t size, char separator)
{
    uint32_t at[PIECE + FL_SCAN_SLACK];
    const char *begin = text;

    for (size_t done = 0; done < size; done += PIECE) {
        size_t left = size - done;
        int n = k->scan_byte(text + done, left < PIECE ? (uint32_t)left : PIECE,
                             separator, PIECE, at);

        for (int i = 0; i < n; i++) {
            FL_TRY(add_trimmed(c, begin, text + done + at[i]));
            begin = text + done + at[i] + 1;
        }
    }
    return add_trimmed(c, begin, text + size);
}

/* The text in quotes from s on, behind the first, to *to; where it ends, or
 * NULL without an ending quote. */
static const char *unquote_cell(const char *s, const char *end, char **to)
{
    for (; s < end; s++) {
        if (*s == '"' && (s + 1 == end || s[1] != '"'))
            return s + 1;
        s += *s == '"';
        *(*to)++ = *s;
    }
    return NULL;
}

/* A cell that begins with a quote at s; *s is moved to the separator or the
 * line's end behind it. */
static fleet_status add_quoted(fl_csv_cells *c, const char **s, const char *end,
                               char separator, char **to, const char **wrong)
{
    const char *text = *to;

    *s = unquote_cell(*s + 1, end, to);
    if (!*s) {
        *wrong = "a quote at the end of the cell";
        return FLEET_OK;
    }
    FL_TRY(add_cell(c, text, *to));
    *(*to)++ = 0; /* no number goes on in the next cell's text */
    while (*s < end && fl_is_blank(**s) && **s != separator)
        ++*s;
    if (*s < end && **s != separator)
        *wrong = "a separator after the cell in quotes";
    return FLEET_OK;
}

static fleet_status cut_quoted(fl_csv_cells *c, const char *s, const char *end,
                               char separator, const char **wrong)
{
    char *to = c->unquoted + FL_TEXT_PAD;

    for (;; s++) {
        const char *begin = s;

        while (s < end && fl_is_blank(*s) && *s != separator)
            s++;
        if (s < end && *s == '"') {
            FL_TRY(add_quoted(c, &s, end, separator, &to, wrong));
        } else {
            while (s < end && *s != separator)
                s++;
            FL_TRY(add_trimmed(c, begin, s));
        }
        if (*wrong || s == end)
            return FLEET_OK;
    }
}

fleet_status fl_csv_cells_cut(fl_csv_cells *c, const fl_kernels *k,
                              const char *text, size_t size, char separator,
                              const char **wrong)
{
    c->n = 0;
    *wrong = NULL;
    if (!memchr(text, '"', size))
        return cut_plain(c, k, text, size, separator);
    FL_TRY(fl_grow(&c->unquoted, &c->unquoted_capacity, size + 2 * FL_TEXT_PAD,
                   1));
    return cut_quoted(c, text, text + size, separator, wrong);
}

void fl_csv_cells_done(fl_csv_cells *c)
{
    fl_free(c->cell);
    fl_free(c->unquoted);
    *c = (fl_csv_cells){0};
}
