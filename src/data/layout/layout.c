/* layout.c - a spec's slots with their defaults, and the columns of each. */
#include "data/layout/layout.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

const char *const fl_transform_names[] = {[FLEET_TRANSFORM_NONE] = "none",
                                          [FLEET_LOG1P] = "log1p",
                                          [FLEET_STANDARDIZE] = "standardize",
                                          [FLEET_LOG1P_STANDARDIZE] =
                                              "log1p_standardize",
                                          [FLEET_HASH] = "hash",
                                          [FLEET_EQUALS] = "equals",
                                          [FLEET_WORDS] = "words",
                                          NULL};

bool fl_slots_by_name(fleet_format format)
{
    return format == FLEET_CSV || format == FLEET_SLOT_TEXT ||
           format == FLEET_JSON_LINES || format == FLEET_TFRECORD ||
           format == FLEET_PARQUET;
}

bool fl_has_columns(fleet_format format)
{
    return format == FLEET_CSV || format == FLEET_PARQUET;
}

int fl_count_read_slots(const fleet_slot *slots, int n_slot)
{
    int n = 0;

    while (n < n_slot && slots[n].n_from == 0)
        n++;
    return n;
}

int fl_slot_named(const fleet_slot *slots, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(slots[i].name, name) == 0)
            return i;
    return -1;
}

bool fl_standardizes(fleet_transform t)
{
    return t == FLEET_STANDARDIZE || t == FLEET_LOG1P_STANDARDIZE;
}

bool fl_slot_is_id(const fleet_slot *slot)
{
    return slot->dtype == FLEET_INT64;
}

int64_t fl_slot_dim(const fleet_slot *slot)
{
    return slot->dim == 0 ? 1 : slot->dim;
}

fleet_transform fl_transform_of(const fleet_slot *slot, int column)
{
    if (slot->n_transform == 0)
        return fl_slot_is_id(slot) ? FLEET_HASH : FLEET_TRANSFORM_NONE;
    return slot->transforms[slot->n_transform == 1 ? 0 : column];
}

int fl_count_standardized(const fleet_slot *slots, int n_slot)
{
    int n = 0;

    for (int i = 0; i < n_slot; i++)
        for (int j = 0; j < slots[i].n_column; j++)
            n += fl_standardizes(fl_transform_of(&slots[i], j));
    return n;
}

const char *fl_command_of(const fl_stream_spec *spec)
{
    const char *c = spec->pipe_command;

    return c && *c && strcmp(c, "cat") != 0 ? c : NULL;
}

static void add_columns(fl_layout *l, const fleet_slot *slot,
                        const fl_statistics *statistics, int *standardized)
{
    for (int i = 0; i < slot->n_column; i++) {
        fl_column *c = &l->column[l->n_column++];

        c->name = slot->columns[i];
        c->transform = fl_transform_of(slot, i);
        if (fl_standardizes(c->transform) && statistics) {
            c->mean = statistics->mean[*standardized];
            c->deviation = statistics->deviation[*standardized];
            ++*standardized;
        }
    }
}

static void add_fields(fl_layout *l, const fl_stream_spec *spec)
{
    int standardized = 0, *from = l->from;

    for (int i = 0; i < spec->n_slot; i++) {
        const fleet_slot *slot = &spec->slots[i];
        const uint64_t seed = spec->seeds ? spec->seeds[i] : (uint64_t)i;

        l->field[i] = (fl_field){.name = slot->name,
                                 .is_id = fl_slot_is_id(slot),
                                 .weighted = slot->weighted != 0,
                                 .dim = fl_slot_dim(slot),
                                 .seed = seed,
                                 .none = fl_hash("", 0, seed),
                                 .equals = slot->equals,
                                 .n_equals = slot->n_equals,
                                 .required = slot->required != 0,
                                 .first_column = l->n_column,
                                 .n_column = slot->n_column,
                                 .from = from,
                                 .n_from = slot->n_from,
                                 .buckets = slot->buckets,
                                 .n_bucket = slot->n_bucket};
        for (int k = 0; k < slot->n_from; k++)
            *from++ = fl_slot_named(spec->slots, i, slot->from[k]);
        if (spec->bounds)
            l->field[i].bounds = spec->bounds[i];
        add_columns(l, slot, spec->statistics, &standardized);
    }
    for (int i = l->n_field - 1; i >= 0; i--) {
        fl_field *f = &l->field[i];

        if (f->is_id && !f->weighted && (f->dim == 1 || f->dim == -1))
            f->n_alike = 1 + (i + 1 < l->n_field ? f[1].n_alike : 0);
    }
}

fleet_status fl_layout_init(fl_layout *l, const fl_stream_spec *spec)
{
    const int n_read = fl_count_read_slots(spec->slots, spec->n_slot);
    size_t n = 0, n_from = 0;

    for (int i = 0; i < spec->n_slot; i++) {
        n += (size_t)spec->slots[i].n_column;
        n_from += (size_t)spec->slots[i].n_from;
    }
    *l = (fl_layout){.n_field = n_read,
                     .n_made = spec->n_slot - n_read,
                     .missing = spec->missing ? spec->missing : "",
                     .separator = spec->separator ? spec->separator : ','};
    l->missing_size = strlen(l->missing);
    l->field = fl_alloc_array((size_t)spec->n_slot, sizeof *l->field);
    l->column = fl_alloc_array(n, sizeof *l->column);
    l->from = fl_alloc_array(n_from, sizeof *l->from);
    if (!l->field || !l->column || !l->from) {
        fl_layout_done(l);
        return FLEET_ENOMEM;
    }
    add_fields(l, spec);
    return FLEET_OK;
}

void fl_layout_done(fl_layout *l)
{
    fl_free(l->field);
    fl_free(l->column);
    fl_free(l->from);
    *l = (fl_layout){0};
}
