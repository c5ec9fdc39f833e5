/* example_record.c - features by name: click, counts, slot_0, slot_1, ... */
#include "example_record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"

enum { /* fields of the schema, as src/data/format/tfrecord.c reads it */
       FIELD_BYTES = 2,
       LENGTH = 8,
       SUM = 4,
       FLOATS = 2,
       INTEGERS = 3
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
    char list[MOST_DENSE * 4 + 40], feature[sizeof list + 40];
    char entry[sizeof feature + 80];
    char *end = put_bytes(list, 1, packed, n);

    end = put_bytes(feature, kind, list, (size_t)(end - list));
    n = (size_t)(end - feature);
    end = put_bytes(entry, 1, name, strlen(name));
    end = put_bytes(end, 2, feature, n);
    return put_bytes(to, 1, entry, (size_t)(end - entry));
}

static char *put_features(const hidden_model *m, const hidden_line *l, char *to)
{
    const float click = (float)l->label;
    float count[MOST_DENSE];
    char name[24], id[12];

    for (int i = 0; i < m->n_dense; i++)
        count[i] = (float)log1p((double)l->count[i]);
    to = put_feature(to, "click", FLOATS, &click, sizeof click);
    if (m->n_dense > 0)
        to = put_feature(to, "counts", FLOATS, count,
                         (size_t)m->n_dense * sizeof *count);
    for (int s = 0; s < m->n_slot; s++) {
        const char *end = put_varint(id, hidden_model_id(m, s, l->rank[s]));

        snprintf(name, sizeof name, "slot_%d", s);
        to = put_feature(to, name, INTEGERS, id, (size_t)(end - id));
    }
    return to;
}

static char *put_sum(char *to, const void *bytes, size_t n)
{
    const uint32_t sum = fl_crc32c_masked(bytes, n);

    memcpy(to, &sum, SUM);
    return to + SUM;
}

char *example_record_put(const hidden_model *m, const hidden_line *l, char *to)
{
    static char features[(MOST_DENSE + MOST_SLOT + 2) * 40];
    char *data = to + LENGTH + SUM, *end = put_features(m, l, features);
    uint64_t size;

    end = put_bytes(data, 1, features, (size_t)(end - features));
    size = (uint64_t)(end - data);
    memcpy(to, &size, LENGTH);
    put_sum(to + LENGTH, to, LENGTH);
    return put_sum(end, data, size);
}
