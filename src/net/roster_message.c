/* roster_message.c - messages as lines: nothing in them is trusted, and all of
 * it is bounded. */
#include "net/roster_message.h"

#include <stdio.h>
#include <stdlib.h>

static const char head[] = "libfleet nodes 1";

enum { MOST_RANK = 4096 };

void fl_roster_message_set(char to[FL_ROSTER_TEXT], const char *value)
{
    snprintf(to, FL_ROSTER_TEXT, "%s", value);
    fl_text_escape(to, FL_ROSTER_TEXT);
}

void fl_roster_message_write(const fl_roster_message *m, fl_text *out)
{
    fl_text_add(out, "%s\n%d\n%s\n%d\n%s\n", head, (int)m->kind, m->id, m->rank,
                m->host);
    for (int i = 0; i < FL_N_ROSTER_FIELD; i++)
        fl_text_add(out, "%s\n", m->field[i]);
    fl_text_add(out, "%s", m->rest);
}

/* The next line, cut off; NULL: there is none. */
static char *take_line(char **text)
{
    char *line = *text, *end = strchr(line, '\n');

    if (!end)
        return NULL;
    *end = 0;
    *text = end + 1;
    return line;
}

static bool read_text(char **text, char *to, size_t size)
{
    const char *line = take_line(text);

    if (!line || strlen(line) >= size)
        return false;
    snprintf(to, size, "%s", line);
    fl_text_escape(to, size); /* it is shown on a terminal */
    return true;
}

static bool read_number(char **text, int least, int most, int *out)
{
    const char *line = take_line(text);
    char *end;
    long value;

    if (!line)
        return false;
    value = strtol(line, &end, 10);
    *out = (int)value;
    return end > line && !*end && value >= least && value <= most;
}

bool fl_roster_message_read(fl_roster_message *m, char *text)
{
    const char *line = take_line(&text);
    int kind;

    if (!line || strcmp(line, head) != 0 ||
        !read_number(&text, 0, FL_N_ROSTER_KIND - 1, &kind) ||
        !read_text(&text, m->id, sizeof m->id) || !*m->id ||
        !read_number(&text, -1, MOST_RANK - 1, &m->rank) ||
        !read_text(&text, m->host, sizeof m->host))
        return false;
    for (int i = 0; i < FL_N_ROSTER_FIELD; i++)
        if (!read_text(&text, m->field[i], sizeof m->field[i]))
            return false;
    m->kind = (fl_roster_kind)kind;
    m->rest = text;
    return true;
}
