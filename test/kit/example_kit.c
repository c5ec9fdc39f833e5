/* example_kit.c - see example_kit.h. Checksums are summed bit by bit, so that
 * nothing of the library's is believed. */
#define SUITE example_kit
#include "example_kit.h"

#include <string.h>

#include "test.h"

char *example_varint(char *to, uint64_t x)
{
    for (; x >= 128; x >>= 7)
        *to++ = (char)(x | 128);
    *to++ = (char)x;
    return to;
}

char *example_field(char *to, int number, const void *bytes, size_t n)
{
    to = example_varint(to, (uint64_t)number << 3 | 2);
    to = example_varint(to, n);
    if (n > 0)
        memcpy(to, bytes, n);
    return to + n;
}

void example_feature(example *e, const char *name, const void *bytes, size_t n)
{
    char entry[2000], *end;

    CHECK(n + strlen(name) < sizeof entry - 20);
    end = example_field(entry, 1, name, strlen(name));
    end = example_field(end, 2, bytes, n);
    CHECK(e->n + sizeof entry < sizeof e->bytes);
    e->n = (size_t)(example_field(e->bytes + e->n, 1, entry,
                                  (size_t)(end - entry)) -
                    e->bytes);
}

/* The kind of list: 1 texts, 2 floats, 3 integers. */
static void add_list(example *e, const char *name, int kind, const char *list,
                     const char *end)
{
    char feature[1600];

    end = example_field(feature, kind, list, (size_t)(end - list));
    example_feature(e, name, feature, (size_t)(end - feature));
}

void example_ints(example *e, const char *name, const int64_t *x, int n)
{
    char packed[700], list[800], *end = packed;

    CHECK(n <= 70);
    for (int i = 0; i < n; i++)
        end = example_varint(end, (uint64_t)x[i]);
    end = example_field(list, 1, packed, (size_t)(end - packed));
    add_list(e, name, 3, list, end);
}

void example_floats(example *e, const char *name, const float *x, int n)
{
    char list[800], *end;

    CHECK(n <= 190);
    end = example_field(list, 1, x, (size_t)n * sizeof *x);
    add_list(e, name, 2, list, end);
}

void example_texts(example *e, const char *name, const char *const *x, int n)
{
    char list[1500], *end = list;

    for (int i = 0; i < n; i++)
        end = example_field(end, 1, x[i], strlen(x[i]));
    add_list(e, name, 1, list, end);
}

static uint32_t masked_sum(const char *data, size_t n)
{
    uint32_t sum = ~0u;

    for (size_t i = 0; i < n; i++) {
        sum ^= (unsigned char)data[i];
        for (int bit = 0; bit < 8; bit++)
            sum = sum >> 1 ^ (sum & 1 ? 0x82f63b78u : 0);
    }
    sum = ~sum;
    return (sum >> 15 | sum << 17) + 0xa282ead8u;
}

char *example_framed(char *to, const void *bytes, size_t n)
{
    const uint64_t size = n;
    uint32_t sum;

    memcpy(to, &size, 8);
    sum = masked_sum(to, 8);
    memcpy(to + 8, &sum, 4);
    if (n > 0)
        memcpy(to + 12, bytes, n);
    sum = masked_sum(to + 12, n);
    memcpy(to + 12 + n, &sum, 4);
    return to + 16 + n;
}

char *example_record(char *to, const example *e)
{
    char whole[4100];
    const char *end = example_field(whole, 1, e->bytes, e->n);

    return example_framed(to, whole, (size_t)(end - whole));
}
