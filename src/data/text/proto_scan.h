/* proto_scan.h - the fields of a message of protocol buffers, one after the
 * other, where they lie. What they mean its reader knows.
 *
 * A field is a key, 8 times its number plus its wire type, and then a varint
 * (0), eight bytes (1), a length and as many bytes (2), or four bytes (5).
 * Groups (3, 4) are of proto2's youth, and are refused. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct fl_proto_scan {
    const char *at, *end;
} fl_proto_scan;

typedef enum fl_proto_type {
    FL_PROTO_VARINT = 0,
    FL_PROTO_FIXED64 = 1,
    FL_PROTO_BYTES = 2,
    FL_PROTO_FIXED32 = 5
} fl_proto_type;

typedef struct fl_proto_field {
    uint64_t number;
    fl_proto_type type;
    fl_proto_scan bytes; /* behind its key and its length */
} fl_proto_field;

/* Where a varint ends; NULL: it does not, or is of more than ten bytes. Of ten
 * bytes the bits above the 64th go, as protocol buffers want it. */
static inline const char *fl_proto_read(const char *at, const char *end,
                                        uint64_t *x)
{
    uint64_t value = 0;

    for (unsigned shift = 0; at < end && shift < 70; shift += 7) {
        const uint64_t byte = (unsigned char)*at++;

        value |= (byte & 127) << shift;
        if (byte < 128) {
            *x = value;
            return at;
        }
    }
    return NULL;
}

/* Inlined, so that a scan stays in registers: written to memory by halves and
 * read as a whole it would wait. */
#define FL_PROTO_INLINE static inline __attribute__((always_inline))

/* The next varint; false: there is none. Keys and lengths are of one byte. */
FL_PROTO_INLINE bool fl_proto_varint(fl_proto_scan *s, uint64_t *x)
{
    const char *at = s->at;
    uint64_t value;

    if (at == s->end)
        return false;
    value = (unsigned char)*at++;
    if (value >= 128) {
        at = fl_proto_read(s->at, s->end, &value);
        if (!at)
            return false;
    }
    s->at = at;
    *x = value;
    return true;
}

FL_PROTO_INLINE bool fl_proto_bytes(fl_proto_scan *s, uint64_t size,
                                    fl_proto_scan *bytes)
{
    if (size > (uint64_t)(s->end - s->at))
        return false;
    bytes->at = s->at;
    s->at += size;
    bytes->end = s->at;
    return true;
}

/* The next field of a scan that is not at its end; false: there is none. */
FL_PROTO_INLINE bool fl_proto_next(fl_proto_scan *s, fl_proto_field *f)
{
    uint64_t key, size;

    if (!fl_proto_varint(s, &key) || key < 8)
        return false;
    f->number = key >> 3;
    f->type = (fl_proto_type)(key & 7);
    switch (f->type) {
    case FL_PROTO_VARINT:
        f->bytes.at = s->at;
        if (!fl_proto_varint(s, &size))
            return false;
        f->bytes.end = s->at;
        return true;
    case FL_PROTO_FIXED64:
        return fl_proto_bytes(s, 8, &f->bytes);
    case FL_PROTO_BYTES:
        return fl_proto_varint(s, &size) && fl_proto_bytes(s, size, &f->bytes);
    case FL_PROTO_FIXED32:
        return fl_proto_bytes(s, 4, &f->bytes);
    }
    return false;
}
