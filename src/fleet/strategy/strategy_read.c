/* strategy_read.c - a strategy from JSON: by the names of the fields, a group
 * of them in an object. */
#include "fleet/strategy/strategy_read.h"

#include <string.h>

#include "fleet/strategy/strategy_check.h"
#include "fleet/strategy/strategy_fields.h"

static fleet_status read_field(const fl_at *at, const fl_strategy_field *f,
                               fleet_distributed_strategy *s)
{
    double x = fl_strategy_field_value(s, f);
    int64_t i = (int64_t)x;
    const char *words = NULL;
    bool b = x != 0;

    if (f->type == FL_FIELD_WORDS) { /* the memory stays the JSON's */
        FL_TRY(fl_at_string(at, &words));
        memcpy((char *)s + f->offset, &words, sizeof words);
        return FLEET_OK;
    }
    if (f->names) {
        int choice = (int)i;

        FL_TRY(fl_at_choice(at, f->names, &choice));
        x = choice;
    } else if (f->type == FL_FIELD_BOOL) {
        FL_TRY(fl_at_bool(at, &b));
        x = b;
    } else if (f->type == FL_FIELD_FLOAT) {
        FL_TRY(
            fl_at_double(at, -1e30, 1e30, &x)); /* the range is checked later */
    } else {
        const bool wide = f->type == FL_FIELD_INT64;

        FL_TRY(fl_at_int(at, wide ? (int64_t)f->low : -1000000000,
                         wide ? (int64_t)f->high : 1000000000, &i));
        x = (double)i;
    }
    fl_strategy_field_set(s, f, x);
    return FLEET_OK;
}

/* The names of fields below a prefix, up to the next dot. */
static int names_below(const char *prefix, const char **name, char *text,
                       size_t size)
{
    size_t length = strlen(prefix), used = 0;
    int n = 0;

    for (int i = 0; i < FL_N_FIELD; i++) {
        const char *rest = fl_fields[i].name + length;
        size_t word;

        if (strncmp(fl_fields[i].name, prefix, length) != 0)
            continue;
        word = strcspn(rest, ".");
        if (n && strncmp(name[n - 1], rest, word) == 0 &&
            name[n - 1][word] == 0)
            continue;
        if (used + word + 1 > size)
            break;
        memcpy(text + used, rest, word);
        name[n++] = text + used;
        used += word + 1;
    }
    name[n] = NULL;
    return n;
}

static fleet_status check_names(const fl_at *at, const char *prefix)
{
    const char *name[FL_N_FIELD + 1];
    char text[FL_N_FIELD * 48] = {0};

    names_below(prefix, name, text, sizeof text);
    return fl_at_keys(at, name);
}

fleet_status fl_strategy_read(const fl_at *at, fleet_distributed_strategy *s)
{
    FL_TRY(check_names(at, ""));
    for (int i = 0; i < FL_N_FIELD; i++) {
        const char *dot = strchr(fl_fields[i].name, '.');
        char group[64];
        fl_at in, value;

        if (!dot) {
            value = fl_at_key(at, fl_fields[i].name);
        } else {
            size_t n = (size_t)(dot - fl_fields[i].name);

            memcpy(group, fl_fields[i].name, n);
            group[n] = 0;
            in = fl_at_key(at, group);
            group[n] = '.';
            group[n + 1] = 0;
            FL_TRY(check_names(&in, group));
            value = fl_at_key(&in, dot + 1);
        }
        FL_TRY(read_field(&value, &fl_fields[i], s));
    }
    return fl_strategy_check_any(s);
}
