/* formats.c - the list of formats. */
#include "data/format/formats.h"

#include "base/memory.h"
#include "data/format/criteo.h"
#include "data/format/csv.h"
#include "data/format/idx.h"
#include "data/format/json_lines.h"
#include "data/format/libsvm.h"
#include "data/format/multislot.h"
#include "data/format/parquet.h"
#include "data/format/parquet_reader.h"
#include "data/format/slot_text.h"
#include "data/format/text_reader.h"
#include "data/format/tfrecord.h"
#include "data/format/tfrecord_reader.h"

const char *const fl_format_names[] = {[FLEET_MULTISLOT] = "multislot",
                                       [FLEET_CRITEO] = "criteo",
                                       [FLEET_CSV] = "csv",
                                       [FLEET_IDX] = "idx",
                                       [FLEET_LIBSVM] = "libsvm",
                                       [FLEET_SLOT_TEXT] = "slot_text",
                                       [FLEET_JSON_LINES] = "json_lines",
                                       [FLEET_TFRECORD] = "tfrecord",
                                       [FLEET_PARQUET] = "parquet",
                                       NULL};

typedef struct format {
    fl_parse *parse;
    fleet_status (*open)(fl_reader **r, const fl_reader_env *env);
    fleet_status (*own_slots)(const char *file, fleet_slot **slots, int *n);
} format;

static const format formats[] = {
    [FLEET_MULTISLOT] = {fl_parse_multislot, fl_text_reader_open, NULL},
    [FLEET_CRITEO] = {fl_parse_criteo, fl_text_reader_open, fl_criteo_slots},
    [FLEET_CSV] = {fl_parse_csv, fl_text_reader_open, NULL},
    [FLEET_IDX] = {fl_parse_idx, fl_idx_reader_open, fl_idx_slots},
    [FLEET_LIBSVM] = {fl_parse_libsvm, fl_text_reader_open, NULL},
    [FLEET_SLOT_TEXT] = {fl_parse_slot_text, fl_text_reader_open, NULL},
    [FLEET_JSON_LINES] = {fl_parse_json_lines, fl_text_reader_open, NULL},
    [FLEET_TFRECORD] = {fl_parse_tfrecord, fl_tfrecord_reader_open, NULL},
    [FLEET_PARQUET] = {fl_parse_parquet, fl_parquet_reader_open, NULL},
};

fl_parse *fl_format_parse(fleet_format f)
{
    return formats[f].parse;
}

fleet_status fl_format_open(fleet_format f, fl_reader **r,
                            const fl_reader_env *env)
{
    return formats[f].open(r, env);
}

bool fl_format_has_slots(fleet_format f)
{
    return (size_t)f < sizeof formats / sizeof *formats &&
           formats[f].own_slots != NULL;
}

fleet_status fl_format_own_slots(fleet_format f, const char *file,
                                 const fleet_slot **slots, int *n_slot)
{
    fleet_slot *made = NULL;

    *slots = NULL;
    *n_slot = 0;
    if (!fl_format_has_slots(f))
        return FLEET_OK;
    FL_TRY(formats[f].own_slots(file, &made, n_slot));
    *slots = made;
    return FLEET_OK;
}

void fl_format_free_own_slots(const fleet_slot *slots)
{
    fl_free((void *)slots); /* their names are the library's */
}
