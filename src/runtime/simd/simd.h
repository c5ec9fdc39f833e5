/* simd.h - vector kernels, compiled once per instruction set, and the table of
 * the kernels that this processor runs. FLEET_ISA=plain|avx2|avx512|avx512_bf16
 * asks for a lesser set: avx512 leaves out avx512_bf16.
 *
 * Arrays may be unaligned. `out` may be one of the inputs, but not overlap an
 * input in part. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/simd/row_storage.h"

enum { FL_SMALL_N = 8 }; /* fc of at most 8 units: kernels of its own */

typedef void fl_unary(float *out, const float *a, int64_t n);
typedef void fl_binary(float *out, const float *a, const float *b, int64_t n);
typedef void fl_scalar(float *out, const float *a, float s, float t, int64_t n);

/* name, type, meaning */
#define FL_SIMD_MAP(XX)                                                        \
    XX(add, fl_binary *)        /* a + b */                                    \
    XX(sub, fl_binary *)        /* a - b */                                    \
    XX(mul, fl_binary *)        /* a b */                                      \
    XX(add_mul, fl_binary *)    /* out + a b */                                \
    XX(scale, fl_scalar *)      /* s a + t */                                  \
    XX(add_scaled, fl_scalar *) /* out + s a; t is not used */                 \
    XX(softmax, fl_unary *)     /* of one row of n */                          \
    XX(col_sum, fl_col_sum *)                                                  \
    XX(row_sum, fl_row_sum *)                                                  \
    XX(gather, fl_gather *)                                                    \
    XX(small_forward, fl_small_fc *)                                           \
    XX(small_dx, fl_small_fc *)                                                \
    XX(small_dw, fl_small_dw *)                                                \
    XX(transpose, fl_transpose *)                                              \
    XX(cast, fl_cast *)                                                        \
    XX(col_sum_bf16, fl_col_sum_bf16 *)                                        \
    XX(to_half, fl_to_half *)     /* to float16, to nearest even */            \
    XX(from_half, fl_from_half *) /* and back */                               \
    XX(write_f16, fl_to_codec *)                                               \
    XX(write_bf16, fl_to_codec *)                                              \
    XX(write_int8, fl_to_codec *)                                              \
    XX(read_f16, fl_from_codec *)                                              \
    XX(read_bf16, fl_from_codec *)                                             \
    XX(read_int8, fl_from_codec *)                                             \
    XX(read_weights, fl_read_weights *)                                        \
    XX(write_weights, fl_write_weights *)                                      \
    XX(hash_rows, fl_hash_rows *)

/* out[c] = the sum over r of x[r * ld + c], in r's order */
typedef void fl_col_sum(float *out, const float *x, int64_t ld, int64_t rows,
                        int64_t cols);
/* the sum of n elements, with a fixed order for each n */
typedef float fl_row_sum(const float *x, int64_t n);

/* Of n samples with n_lane rows each: lane l of sample i goes to out[l] + i *
 * ld[l]; row[i * n_lane + l] is where it lies. */
typedef struct fl_gather_args {
    float *const *out;
    const int64_t *ld;
    const float *const *row;
    int64_t n, n_feature, dim;
} fl_gather_args;
typedef void fl_gather(const fl_gather_args *a);

/* A fully connected layer with n <= FL_SMALL_N units; wt is W transposed, [n,
 * k]. forward: y[r, j] = bias[j] + sum of x[r, :] wt[j, :]; dx: x[r, :] = sum
 * of y[r, j] wt[j, :]. ld are the rows' strides of x and y. */
typedef struct fl_small_fc_args {
    float *x;
    int64_t ldx;
    float *y;
    int64_t ldy;
    const float *wt, *bias;
    int64_t rows, k;
    int n;
} fl_small_fc_args;
typedef void fl_small_fc(const fl_small_fc_args *a);

/* dw[c * n + j] = sum over r of x[r, c] y[r, j], c in [0, k), in r's order */
typedef void fl_small_dw(const fl_small_fc_args *a, float *dw);

/* out[c * ldo + r] = x[r * ldx + c] */
typedef void fl_transpose(float *out, int64_t ldo, const float *x, int64_t ldx,
                          int64_t rows, int64_t cols);

/* --- bfloat16: the upper half of a float, rounded to nearest even --------- */

typedef void fl_cast(uint16_t *out, const float *a, int64_t n);
typedef void fl_col_sum_bf16(float *out, const uint16_t *x, int64_t ld,
                             int64_t rows, int64_t cols);

/* Numbers of either type; what is computed of them is computed in float. */
typedef struct fl_numbers {
    void *at;
    bool bf16;
} fl_numbers;
typedef void fl_to_half(uint16_t *out, const float *a, int64_t n);
typedef void fl_from_half(float *out, const uint16_t *a, int64_t n);

/* --- values of messages: ps/codec.h -------------------------------------- */

enum { FL_INT8_GROUP = 256 }; /* numbers of a row that share a scale */

/* Rows of n numbers, written in fewer bytes, at any place, rounded to nearest
 * even, and read back. What is not finite stays so (int8: with all of its
 * group); what is too large for float16 becomes the largest there is. With
 * `rest` a[] then is what was rounded away, 0 where a number is not finite;
 * else it stays as it is. */
typedef void fl_to_codec(void *out, float *a, bool rest, int64_t rows,
                         int64_t n);
typedef void fl_from_codec(float *out, const void *a, int64_t rows, int64_t n);

/* --- hashes of rows: runtime/store/live_hash.h ---------------------------- */

/* Where the hashes of rows go, of words of 32 bits: into the entry that the top
 * bits of fl_mix(key) name. Lane l of a row's hash is the sum over
 * i of factor(i / 8) times word i, of all i that leave l modulo 8, in 32 bits,
 * where factors are odd and come of the key; and one more factor, so that a row
 * of zeros counts. Rows of one key that differ in one word never have the same
 * one. */
enum { FL_HASH_LANES = 8, FL_HASH_SHIFT = 64 - 10 };
typedef uint32_t fl_hash_sum[FL_HASH_LANES];
typedef struct fl_row_hash {
    fl_hash_sum *to;     /* 1,024 */
    const uint64_t *key; /* of each row */
    int64_t words;
} fl_row_hash;

/* n rows are added, or taken out; the next ones are asked for. */
typedef void fl_hash_rows(const fl_row_hash *h, const float *const *row,
                          int64_t n, bool out);

/* --- activations: the formulas of activations.def ------------------------- */

enum {
    FL_N_ACTIVATION = 1 /* FLEET_LINEAR, which has no kernels */
#define FL_ACTIVATION(...) +1
#include "runtime/simd/activations.def"
#undef FL_ACTIVATION
};

/* Activations that have no alpha do not use the argument. */
typedef struct fl_activation_simd {
    void (*forward)(float *y, const float *x, float alpha, int64_t n);
    void (*forward_bf16)(uint16_t *x, float alpha, int64_t n); /* in place */
    void (*gradient)(float *dx, const float *y, const float *dy, float alpha,
                     int64_t n);
    void (*gradient_any)(fl_numbers dx, fl_numbers y, fl_numbers dy,
                         float alpha, int64_t n);
} fl_activation_simd;

/* --- the formulas of unaries.def, binaries.def and comparisons.def -------- */

enum fl_unary_kind {
#define FL_UNARY(NAME, ...) FL_UNARY_##NAME,
#include "runtime/simd/unaries.def"
#undef FL_UNARY
    FL_N_UNARY
};

enum fl_binary_kind {
#define FL_BINARY(NAME, ...) FL_BINARY_##NAME,
#include "runtime/simd/binaries.def"
#undef FL_BINARY
    FL_N_BINARY, /* with a gradient; those behind it have none */
    FL_BEFORE_COMPARISONS = FL_N_BINARY - 1,
#define FL_COMPARISON(NAME, ...) FL_BINARY_##NAME,
#include "runtime/simd/comparisons.def"
#undef FL_COMPARISON
    FL_N_FORMULA
};

/* The gradient's x is the operator's input or its result, as the list says. */
typedef struct fl_unary_simd {
    void (*forward)(float *y, const float *x, float a, float b, int64_t n);
    void (*gradient)(float *dx, const float *x, const float *dy, float a,
                     float b, int64_t n);
} fl_unary_simd;

/* n elements of each operand, or one that counts n times. */
typedef struct fl_operand_pair {
    const float *x, *y;
    bool x_is_one, y_is_one;
    int64_t n;
} fl_operand_pair;

/* The n terms become d, are added to d, or their sum to *d. */
typedef enum fl_terms_mode {
    FL_TERMS_SET,
    FL_TERMS_ADD,
    FL_TERMS_SUM
} fl_terms_mode;

typedef struct fl_binary_simd {
    void (*forward)(float *out, const fl_operand_pair *o);
    void (*gradient[2])(float *d, fl_terms_mode mode, const float *g,
                        const fl_operand_pair *o); /* of x, of y; or NULL */
} fl_binary_simd;

typedef enum fl_isa { FL_ISA_PLAIN, FL_ISA_AVX2, FL_ISA_AVX512 } fl_isa;

typedef struct fl_simd {
    const char *isa; /* the name of level */
    fl_isa level;    /* for tables of other files, such as rule.h's */
#define FL_SIMD_FIELD(name, type) type name;
    FL_SIMD_MAP(FL_SIMD_FIELD)
#undef FL_SIMD_FIELD
    fl_activation_simd activation[FL_N_ACTIVATION]; /* by fleet_activation */
    fl_unary_simd unary[FL_N_UNARY];
    fl_binary_simd binary[FL_N_FORMULA];
} fl_simd;

/* The best table for this processor; never NULL. */
const fl_simd *fl_simd_best(void);

/* Are products of bfloat16 done by avx512_bf16, at twice the speed? */
bool fl_simd_has_bf16(void);

/* All that this processor runs, for tests; NULL ends the list. */
const fl_simd *const *fl_simd_all(void);
