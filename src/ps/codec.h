/* codec.h - how the values of rows and blocks travel (fl_codec, net/message.h):
 * as they are, or in fewer bytes. What is written depends on a row or a block
 * alone, and not on the message that it is in, so in sync results do not depend
 * on the number of servers and lanes.
 *
 *   F16   float16; what is too large for it is its largest number
 *   BF16  bfloat16
 *   INT8  for each 256 numbers of a row or block, and for the rest, a scale
 *         (bfloat16, the largest of them / 127, rounded up) and a byte each
 *
 * A worker's pushes carry what was rounded away over to its next push of the
 * same row or block: residuals.h. */
#pragma once

#include "net/message.h"

/* How a worker and its servers send values. Zero: all of them as they are. */
typedef struct fl_wire_options {
    fl_codec push, pull;
    bool forgets;    /* what a push has rounded away */
    bool packs_keys; /* codec_keys.h */
} fl_wire_options;

/* What a table's rows of that dim are sent as: INT8 of one or two numbers would
 * take no fewer bytes than BF16, which is more exact. */
static inline fl_codec fl_codec_of_rows(fl_codec codec, int64_t dim)
{
    return codec == FL_CODEC_INT8 && dim <= 2 ? FL_CODEC_BF16 : codec;
}

/* Bytes of a row, or of a block, of n numbers. */
size_t fl_codec_bytes(fl_codec codec, int64_t n);

/* `rows` of n numbers each, one behind the other. Writing with `rest` puts in
 * their place what was rounded away (simd.h). */
void fl_codec_write(fl_codec codec, void *to, float *values, bool rest,
                    int64_t rows, int64_t n);
void fl_codec_read(fl_codec codec, float *to, const void *from, int64_t rows,
                   int64_t n);
