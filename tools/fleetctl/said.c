/* said.c - reads what a lane has said. */
#include "said.h"

#include <string.h>

int64_t said_number(const fl_at *object, const char *key)
{
    fl_at at = fl_at_key(object, key);
    int64_t n = -1;

    return fl_at_int(&at, INT64_MIN, INT64_MAX, &n) == FLEET_OK ? n : -1;
}

const char *said_text(const fl_at *object, const char *key)
{
    fl_at at = fl_at_key(object, key);
    const char *text = "-";

    return fl_at_string(&at, &text) == FLEET_OK ? text : "-";
}

bool said_leads(const asked_lane *l)
{
    fl_at at = fl_at_root(l->is);
    const char *copy = said_text(&at, "copy");

    return strcmp(copy, "follows") != 0 && strcmp(copy, "gone") != 0 &&
           strcmp(copy, "none") != 0;
}
