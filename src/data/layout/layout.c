/* layout.c - see layout.h; and the slots that some formats have by themselves.
 */
#include "data/layout.h"

#include <string.h>

#include "base/hash.h"
#include "base/memory.h"
#include "data/format/idx.h"
#include "data/format/text_kernels.h"

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
    int standardized = 0;

    for (int i = 0; i < spec->n_slot; i++) {
        const fleet_slot *slot = &spec->slots[i];

        l->field[i] = (fl_field){.name = slot->name,
                                 .is_id = fl_slot_is_id(slot),
                                 .dim = fl_slot_dim(slot),
                                 .seed = (uint64_t)i,
                                 .none = fl_hash("", 0, (uint64_t)i),
                                 .equals = slot->equals,
                                 .n_equals = slot->n_equals,
                                 .required = slot->required != 0,
                                 .first_column = l->n_column,
                                 .n_column = slot->n_column};
        add_columns(l, slot, spec->statistics, &standardized);
    }
    for (int i = l->n_field - 1; i >= 0; i--) {
        fl_field *f = &l->field[i];

        if (f->is_id && (f->dim == 1 || f->dim == -1))
            f->n_alike = 1 + (i + 1 < l->n_field ? f[1].n_alike : 0);
    }
}

fleet_status fl_layout_init(fl_layout *l, const fl_stream_spec *spec)
{
    size_t n = 0;

    for (int i = 0; i < spec->n_slot; i++)
        n += (size_t)spec->slots[i].n_column;
    *l = (fl_layout){.n_field = spec->n_slot,
                     .missing = spec->missing ? spec->missing : "",
                     .separator = spec->separator ? spec->separator : ','};
    l->missing_size = strlen(l->missing);
    l->field = fl_alloc_array((size_t)spec->n_slot, sizeof *l->field);
    l->column = fl_alloc_array(n, sizeof *l->column);
    if (!l->field || !l->column) {
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
    *l = (fl_layout){0};
}

static fleet_status criteo_slots(fleet_slot *slot)
{
    static const char *const names[FL_CRITEO_IDS] = {
        "1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",
        "10", "11", "12", "13", "14", "15", "16", "17", "18",
        "19", "20", "21", "22", "23", "24", "25", "26"};

    slot[0] = (fleet_slot){.name = "label", .dtype = FLEET_INT64, .dim = 1};
    slot[1] = (fleet_slot){
        .name = "dense_input", .dtype = FLEET_FLOAT32, .dim = FL_CRITEO_DENSE};
    for (int i = 0; i < FL_CRITEO_IDS; i++)
        slot[2 + i] =
            (fleet_slot){.name = names[i], .dtype = FLEET_INT64, .dim = 1};
    return FLEET_OK;
}

static fleet_status idx_slots(fleet_slot *slot, const char *images)
{
    int64_t width;

    FL_TRY(fl_idx_width(images, &width));
    slot[0] =
        (fleet_slot){.name = "image", .dtype = FLEET_FLOAT32, .dim = width};
    slot[1] = (fleet_slot){.name = "label", .dtype = FLEET_INT64, .dim = 1};
    return FLEET_OK;
}

fleet_status fl_stream_own_slots(fleet_format format, const char *images,
                                 const fleet_slot **slots, int *n_slot)
{
    int n = format == FLEET_CRITEO ? 2 + FL_CRITEO_IDS
            : format == FLEET_IDX  ? 2
                                   : 0;
    fleet_status status;
    fleet_slot *made;

    *slots = NULL;
    *n_slot = 0;
    if (n == 0)
        return FLEET_OK;
    if (format == FLEET_IDX && !images)
        return fl_fail(FLEET_EINVAL, "idx: there is no file of images");
    made = fl_alloc_array((size_t)n, sizeof *made);
    if (!made)
        return FLEET_ENOMEM;
    status =
        format == FLEET_CRITEO ? criteo_slots(made) : idx_slots(made, images);
    if (status != FLEET_OK) {
        fl_free(made);
        return status;
    }
    *slots = made;
    *n_slot = n;
    return FLEET_OK;
}

void fl_stream_free_own_slots(const fleet_slot *slots, int n_slot)
{
    (void)n_slot; /* their names are the library's */
    fl_free((void *)slots);
}
