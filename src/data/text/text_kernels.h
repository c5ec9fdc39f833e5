/* text_kernels.h - kernels that work on many bytes of text at a time.
 *
 * text_kernels_simd.c is compiled once for each instruction set;
 * fl_kernels_best() is the table for this processor. All tables give the same
 * results.
 */
#pragma once

#include <stdint.h>

#include "data/text/number.h"

enum {
    FL_SCAN_SLACK = 80, /* entries past the result that may be written over */
    FL_WINDOW = 2048,   /* bytes that are cut into tokens at once */
    FL_READ_MOST = 64,  /* tokens that are read at once */
    FL_READ_SLACK = 8,  /* values past the result that may be written over */

    FL_CRITEO_CELLS = 40, /* label, 13 integers, 26 texts */
    FL_CRITEO_DENSE = 13,
    FL_CRITEO_IDS = 26,
    FL_CRITEO_TILE = 32,  /* lines that are taken together */
    FL_CRITEO_LANES = 16, /* 13 integers and what fills up the vectors */
    FL_CRITEO_ENDS = FL_CRITEO_CELLS + FL_SCAN_SLACK
};

/* Some lines of Criteo's, cut into cells that are not yet numbers and ids. */
typedef struct fl_criteo_tile {
    uint32_t end[FL_CRITEO_TILE][FL_CRITEO_ENDS];     /* of each cell */
    uint64_t number[FL_CRITEO_TILE][FL_CRITEO_LANES]; /* last 8 bytes */
    uint64_t text[FL_CRITEO_IDS][FL_CRITEO_TILE];     /* first 8 bytes */
    int64_t label[FL_CRITEO_TILE];
    uint64_t odd[FL_CRITEO_TILE]; /* bit c: cell c needs a closer look */
} fl_criteo_tile;

/* The tokens of a text: token i lies between at[i] and at[i + 1], where blanks
 * are; at[0] is UINT32_MAX, the place before the text. Two blanks side by side
 * have an empty token between them. */
typedef struct fl_tokens {
    uint32_t at[1 + FL_WINDOW + FL_SCAN_SLACK];
} fl_tokens;

typedef struct fl_kernels {
    const char *isa;

    /* Find the bytes of text[0, size) that are equal to one: at[] gets their
     * places, the result is how many. The search ends after the 64 bytes in
     * which `enough` are reached; at[] has room for FL_SCAN_SLACK more. */
    int (*scan_byte)(const char *text, uint32_t size, char one, int enough,
                     uint32_t *at);

    /* Find the tokens of text[0, size), size <= FL_WINDOW, that a blank (space,
     * \t, \v, \f, \r) follows, and if at_end the last one; how many. */
    int (*scan_tokens)(const char *text, uint32_t size, bool at_end,
                       fl_tokens *t);

    /* Read n <= FL_READ_MOST tokens, of which at[0] is the place before the
     * first. Bit i of the result: token i could not be read, as it is empty,
     * wrong, or just not short and simple; then out[i] is anything. */
    uint64_t (*read_ids)(const char *text, const uint32_t *at, int n,
                         uint64_t *out);
    uint64_t (*read_floats)(const char *text, const uint32_t *at, int n,
                            float *out);

    /* The same for n pairs of tokens, of which the first is "1". */
    uint64_t (*read_single_ids)(const char *text, const uint32_t *at, int n,
                                uint64_t *out);

    /* Cut a line into the cells of tile's row; how many it has. The rest of the
     * row is made only if they are FL_CRITEO_CELLS. */
    int (*criteo_cut)(const char *text, uint32_t size, fl_criteo_tile *tile,
                      int row);

    /* The tile's integers, scaled, 13 in a row of dense. A cell that is odd
     * may become any number. */
    void (*criteo_dense)(fl_criteo_tile *tile, int rows, float *dense);

    /* XXH64 of texts of eight bytes. */
    void (*hash_eights)(const uint64_t *text, int n, uint64_t seed,
                        uint64_t *hash);
} fl_kernels;

/* FLEET_ISA=plain|avx2|avx512|vbmi2 asks for less than the best. */
const fl_kernels *fl_kernels_best(void);

/* The i-th set of kernels that this processor runs, the best first, for tests;
 * NULL after the last. */
const fl_kernels *fl_kernels_at(int i);

/* Criteo's integer x is scaled to (x - low) / range, as PaddleRec does. */
extern const double fl_criteo_low[FL_CRITEO_LANES];
extern const double fl_criteo_range[FL_CRITEO_LANES];
