/* tfrecord.c - a tf.Example a record: a map from names to lists of integers,
 * floats or texts. A slot has the values of the feature that is called as it;
 * what no slot is called is passed over.
 *
 * The schema is TensorFlow's example.proto and feature.proto, whose numbers are
 * below. It is read where it lies, three times faster than protobuf-c makes
 * structures of it (docs/adr/0098-tfrecord.md). */
#include "data/format/tfrecord.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"
#include "data/parse/row_values.h"
#include "data/format/tfrecord_reader.h"
#include "data/text/proto_scan.h"

enum {
    EXAMPLE_FEATURES = 1,
    FEATURES_FEATURE = 1,
    ENTRY_KEY = 1,
    ENTRY_VALUE = 2,
    LIST_VALUE = 1
};

typedef enum list_kind { /* the fields of a Feature */
                         NO_LIST,
                         BYTES_LIST,
                         FLOAT_LIST,
                         INT64_LIST
} list_kind;

static const char *const list_names[] = {"no list", "bytes_list", "float_list",
                                         "int64_list"};

static const fl_field *field_of(const fl_row_values *v, int slot)
{
    return &v->parser->layout.field[slot];
}

static fleet_status refuse_record(const fl_row_values *v, const char *slot,
                                  const char *what, const char *got)
{
    return fl_bad_line(v->parser, v->line, slot, what, got,
                       got ? got + strlen(got) : NULL);
}

static fleet_status refuse_message(const fl_row_values *v, const char *slot)
{
    return refuse_record(v, slot, "a tf.Example, a message of protocol buffers",
                         "bytes that are none");
}

static fleet_status refuse_list(const fl_row_values *v, const fl_field *f,
                                list_kind kind)
{
    return refuse_record(v, f->name,
                         f->is_id ? "ids (int64_list), or texts (bytes_list)"
                                  : "numbers (float_list or int64_list)",
                         list_names[kind]);
}

/* --- values --------------------------------------------------------------- */

/* How many varints end in these bytes. */
static size_t count_varints(const fl_proto_scan *s)
{
    size_t n = 0;

    for (const char *at = s->at; at < s->end; at++)
        n += (unsigned char)*at < 128;
    return n;
}

static fleet_status add_integers(fl_row_values *v, int slot, fl_proto_scan s)
{
    const fl_field *f = field_of(v, slot);
    const size_t n = count_varints(&s);
    uint64_t *id, x = 0;
    float *number;
    size_t at;

    FL_TRY(fl_row_values_add_many(v, slot, n, &at));
    id = (uint64_t *)v->buffer->batch.slot[slot].values + at;
    number = (float *)v->buffer->batch.slot[slot].values + at;
    for (size_t i = 0; i < n; i++) {
        if (!fl_proto_varint(&s, &x))
            return refuse_message(v, f->name);
        if (f->is_id)
            id[i] = x;
        else
            number[i] = (float)(int64_t)x;
    }
    return s.at == s.end ? FLEET_OK : refuse_message(v, f->name);
}

static fleet_status add_floats(fl_row_values *v, int slot, fl_proto_scan s)
{
    const fl_field *f = field_of(v, slot);
    const size_t size = (size_t)(s.end - s.at), n = size / sizeof(float);
    float *to;
    size_t at;

    if (size % sizeof(float) != 0)
        return refuse_message(v, f->name);
    FL_TRY(fl_row_values_add_many(v, slot, n, &at));
    to = (float *)v->buffer->batch.slot[slot].values + at;
    if (n > 0)
        memcpy(to, s.at, size);
    for (size_t i = 0; i < n; i++)
        if (!isfinite(to[i]))
            return refuse_record(v, f->name, "a finite number",
                                 isnan(to[i]) ? "nan" : "inf");
    return FLEET_OK;
}

static fleet_status add_text(fl_row_values *v, int slot, fl_proto_scan s)
{
    size_t at;

    FL_TRY(fl_row_values_add_many(v, slot, 1, &at));
    ((uint64_t *)v->buffer->batch.slot[slot].values)[at] =
        fl_hash(s.at, (size_t)(s.end - s.at), field_of(v, slot)->seed);
    return FLEET_OK;
}

/* --- lists ---------------------------------------------------------------- */

/* A list's values are packed, many in a field, or have a field each. */
static fleet_status add_field(fl_row_values *v, int slot, list_kind kind,
                              const fl_proto_field *field)
{
    const bool packed = field->type == FL_PROTO_BYTES;

    if (kind == BYTES_LIST && packed)
        return add_text(v, slot, field->bytes);
    if (kind == FLOAT_LIST && (packed || field->type == FL_PROTO_FIXED32))
        return add_floats(v, slot, field->bytes);
    if (kind == INT64_LIST && (packed || field->type == FL_PROTO_VARINT))
        return add_integers(v, slot, field->bytes);
    return refuse_message(v, field_of(v, slot)->name);
}

static fleet_status add_list(fl_row_values *v, int slot, list_kind kind,
                             fl_proto_scan s)
{
    while (s.at < s.end) {
        fl_proto_field field;

        if (!fl_proto_next(&s, &field))
            return refuse_message(v, field_of(v, slot)->name);
        if (field.number == LIST_VALUE)
            FL_TRY(add_field(v, slot, kind, &field));
    }
    return FLEET_OK;
}

/* Its list; no list is no value. Of a oneof the last one counts. */
static fleet_status read_feature(fl_row_values *v, int slot, fl_proto_scan s)
{
    const fl_field *f = field_of(v, slot);
    fl_proto_scan list = {NULL, NULL};
    list_kind kind = NO_LIST;

    while (s.at < s.end) {
        fl_proto_field field;

        if (!fl_proto_next(&s, &field))
            return refuse_message(v, f->name);
        if (field.number < BYTES_LIST || field.number > INT64_LIST)
            continue;
        if (field.type != FL_PROTO_BYTES)
            return refuse_message(v, f->name);
        kind = (list_kind)field.number;
        list = field.bytes;
    }
    if (f->is_id ? kind == FLOAT_LIST : kind == BYTES_LIST)
        return refuse_list(v, f, kind);
    return add_list(v, slot, kind, list);
}

/* --- records -------------------------------------------------------------- */

/* An entry of the map; its key comes first or last. */
static fleet_status read_entry(fl_row_values *v, fl_proto_scan s)
{
    fl_proto_scan key = {s.at, s.at}, value = {NULL, NULL};
    int slot;

    while (s.at < s.end) {
        fl_proto_field field;

        if (!fl_proto_next(&s, &field))
            return refuse_message(v, NULL);
        if (field.number != ENTRY_KEY && field.number != ENTRY_VALUE)
            continue;
        if (field.type != FL_PROTO_BYTES)
            return refuse_message(v, NULL);
        if (field.number == ENTRY_KEY)
            key = field.bytes;
        else
            value = field.bytes;
    }
    slot = fl_slot_names_find(&v->parser->names, key.at,
                              (size_t)(key.end - key.at));
    if (slot < 0)
        return FLEET_OK;
    if (v->scratch->seen[slot] == v->row + 1)
        return refuse_record(v, field_of(v, slot)->name,
                             "one feature of that name", "another one");
    v->scratch->seen[slot] = v->row + 1;
    return read_feature(v, slot, value);
}

static fleet_status read_features(fl_row_values *v, fl_proto_scan s)
{
    while (s.at < s.end) {
        fl_proto_field field;

        if (!fl_proto_next(&s, &field))
            return refuse_message(v, NULL);
        if (field.number != FEATURES_FEATURE)
            continue;
        if (field.type != FL_PROTO_BYTES)
            return refuse_message(v, NULL);
        FL_TRY(read_entry(v, field.bytes));
    }
    return FLEET_OK;
}

static fleet_status check_sum(const fl_row_values *v, size_t size)
{
    uint32_t sum;

    memcpy(&sum, v->line->text + size, sizeof sum);
    return fl_crc32c_masked(v->line->text, size) == sum
               ? FLEET_OK
               : refuse_record(v, NULL, "a record with the checksum behind it",
                               "one that is damaged");
}

static fleet_status read_record(fl_row_values *v)
{
    const size_t size = v->line->size - FL_TFRECORD_SUM;
    fl_proto_scan s = {v->line->text, v->line->text + size};

    FL_TRY(check_sum(v, size));
    while (s.at < s.end) {
        fl_proto_field field;

        if (!fl_proto_next(&s, &field))
            return refuse_message(v, NULL);
        if (field.number != EXAMPLE_FEATURES)
            continue;
        if (field.type != FL_PROTO_BYTES)
            return refuse_message(v, NULL);
        FL_TRY(read_features(v, field.bytes));
    }
    return fl_row_values_end(v);
}

fleet_status fl_parse_tfrecord(const fl_parser *p, fl_scratch *scratch,
                               fl_batch_buffer *buffer)
{
    fl_row_values v = {.parser = p, .buffer = buffer, .scratch = scratch};

    FL_TRY(fl_row_values_begin(&v));
    memset(scratch->seen, 0, (size_t)p->layout.n_field * sizeof *scratch->seen);
    for (; v.row < (int64_t)buffer->lines.n; v.row++) {
        v.line = &buffer->lines.line[v.row];
        FL_TRY(read_record(&v));
    }
    return FLEET_OK;
}
