/* example_record.c - fields as features of their names. */
#include "example_record.h"

#include <math.h>
#include <string.h>

#include "base/crc32c.h"

enum { /* fields of the schema, as src/data/format/tfrecord.c reads it */
       FIELD_BYTES = 2,
       LENGTH = 8,
       SUM = 4,
       FLOATS = 2,
       INTEGERS = 3,
       ID_SIZE = 5 /* bytes, at most */
};

static char *put_varint(char *to, uint64_t x)
{
    for (; x >= 128; x >>= 7)
        *to++ = (char)(x | 128);
    *to++ = (char)x;
    return to;
}

static char *put_bytes(char *to, int field, const void *bytes, size_t n)
{
    to = put_varint(to, (uint64_t)(field << 3 | FIELD_BYTES));
    to = put_varint(to, n);
    memcpy(to, bytes, n);
    return to + n;
}

/* An entry of the map: a name, and a list whose values are packed. */
static char *put_feature(char *to, const char *name, int kind,
                         const void *packed, size_t n)
{
    char list[MOST_HISTORY * ID_SIZE + 40], feature[sizeof list + 40];
    char entry[sizeof feature + 80];
    char *end = put_bytes(list, 1, packed, n);

    end = put_bytes(feature, kind, list, (size_t)(end - list));
    n = (size_t)(end - feature);
    end = put_bytes(entry, 1, name, strlen(name));
    end = put_bytes(end, 2, feature, n);
    return put_bytes(to, 1, entry, (size_t)(end - entry));
}

/* A list of floats. */
static char *put_floats(char *to, const data_field *f)
{
    float x[MOST_DENSE];

    for (int i = 0; i < f->n; i++)
        x[i] = f->kind == LOG_Q_FIELD   ? (float)f->real[i]
               : f->kind == COUNT_FIELD ? (float)log1p((double)f->value[i])
                                        : (float)f->value[i];
    return put_feature(to, f->name, FLOATS, x, (size_t)f->n * sizeof *x);
}

static char *put_ids(char *to, const data_field *f)
{
    char id[MOST_HISTORY * ID_SIZE], *end = id;

    for (int i = 0; i < f->n; i++)
        end = put_varint(end, (uint64_t)f->value[i]);
    return put_feature(to, f->name, INTEGERS, id, (size_t)(end - id));
}

static char *put_features(const data_line *l, char *to)
{
    for (int i = 0; i < l->n; i++)
        to = data_field_has_ids(&l->field[i]) ? put_ids(to, &l->field[i])
                                              : put_floats(to, &l->field[i]);
    return to;
}

static char *put_sum(char *to, const void *bytes, size_t n)
{
    const uint32_t sum = fl_crc32c_masked(bytes, n);

    memcpy(to, &sum, SUM);
    return to + SUM;
}

char *example_record_put(const data_line *l, char *to)
{
    static char features[(MOST_DENSE + MOST_SLOT + 2) * 40];
    char *data = to + LENGTH + SUM, *end = put_features(l, features);
    uint64_t size;

    end = put_bytes(data, 1, features, (size_t)(end - features));
    size = (uint64_t)(end - data);
    memcpy(to, &size, LENGTH);
    put_sum(to + LENGTH, to, LENGTH);
    return put_sum(end, data, size);
}
