/* interactions.h - layers that cross features, of which click models are made:
 * cross layers, factorization machines, dots of pairs, CIN, attention.
 *
 * They are made of the operators of nn.h and ops.h, whose shapes and failures
 * are theirs, too. F is the number of fields, D of a field's vector. A `name`
 * is the prefix of the parameters' names; NULL is "<layer>_<n>", n from 0.
 */
#ifndef FLEET_INTERACTIONS_H
#define FLEET_INTERACTIONS_H

#include <fleet/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- cross layers --------------------------------------------------------- */

/* fleet_cross_layer - a layer of a cross network (DCN, Wang et al. 2017): x0 (x
 * . w) + b + x.
 *
 *   x0   [B, N]  what the network is of
 *   x    [B, N]  the layer before this one; of the first x0
 *   w    [N, 1]  new parameter "<name>.w"; name NULL: "cross_<n>"
 *   b    [N]     new parameter "<name>.b", zeros
 *   out  [B, N] */
FLEET_API fleet_var *fleet_cross_layer(fleet_program *program, fleet_var *x0,
                                       fleet_var *x, const char *name);

typedef struct fleet_cross_options {
    const char *name; /* NULL: "cross_<n>" */
    int64_t low_rank; /* R, up to N; 0: the matrix is whole */
    int64_t experts;  /* E, 2 to 64, with low_rank; 0: no mixture */
} fleet_cross_options;

/* fleet_cross_layer_v2 - the same with a matrix (DCN v2, Wang et al. 2021): x0
 * (x W + b) + x, element by element.
 *
 *   W  [N, N]  "<name>.w"
 *   b  [N]     "<name>.b", zeros
 *
 * With low_rank x W is x V U: "<name>.v" [N, R], "<name>.u" [R, N]. With
 * experts, too, it is the sum over the experts i of
 *
 *   g_i tanh(tanh(x V_i) C_i) U_i
 *
 * with g the softmax of x G: "<name>.v_0", ... [N, R], "<name>.c_0", ... [R,
 * R], "<name>.u" [E R, N], "<name>.gate" [N, E]. options may be NULL. */
FLEET_API fleet_var *fleet_cross_layer_v2(fleet_program *program, fleet_var *x0,
                                          fleet_var *x,
                                          const fleet_cross_options *options);

/* --- pairs of fields ------------------------------------------------------ */

/* fleet_bi_interaction - the sum over all pairs of fields of their vectors'
 * product, element by element (NFM, He and Chua 2017); [B, F, D] -> [B, D]. */
FLEET_API fleet_var *fleet_bi_interaction(fleet_program *program, fleet_var *x);

/* fleet_fm_interaction - the sum over all pairs of fields of their vectors'
 * dot: the second order of a factorization machine (Rendle 2010); [B, F, D]
 * -> [B, 1]. */
FLEET_API fleet_var *fleet_fm_interaction(fleet_program *program, fleet_var *x);

/* fleet_ffm_interaction - the same where a field has a vector for each other
 * field (FFM, Juan et al. 2016): the sum over i < j of the dot of x[i, j] and
 * x[j, i]; [B, F, F, D] -> [B, 1], F at least 2. */
FLEET_API fleet_var *fleet_ffm_interaction(fleet_program *program,
                                           fleet_var *x);

/* fleet_pairwise_dot - the dots of all pairs of fields (DLRM, Naumov et al.
 * 2019), in the order of fleet_lower_triangle(): of fields 1 and 0, 2 and 0, 2
 * and 1, ...; with `self` nonzero also of each field with itself.
 *
 *   x    [B, F, D]; F at least 2, or 1 with self
 *   out  [B, F (F - 1) / 2]; with self [B, F (F + 1) / 2] */
FLEET_API fleet_var *fleet_pairwise_dot(fleet_program *program, fleet_var *x,
                                        int self);

/* fleet_cin - a compressed interaction network (xDeepFM, Lian et al. 2018): row
 * h of layer k is the sum over the rows i of layer k - 1, and the fields j, of
 * w_hij times their product, element by element; layer 0 is x. All rows of all
 * layers are summed over D.
 *
 *   x      [B, F, D]
 *   units  [n] rows of each layer; n 1 to 64
 *   out    [B, the sum of units]
 *
 * Parameters "<name>_0.w" [F H, units], ..., H the rows of the layer before; of
 * input i and field j it has row j H + i. name NULL: "cin_<n>". */
FLEET_API fleet_var *fleet_cin(fleet_program *program, fleet_var *x,
                               const int64_t *units, int n, const char *name);

/* --- attention ------------------------------------------------------------ */

/* All-zero fields are defaults. */
typedef struct fleet_attention_options {
    const char *name;            /* NULL: "attention_<n>" */
    int64_t heads;               /* H, which divides units; 0: 1 */
    int64_t units;               /* U; 0: N of the query */
    fleet_activation activation; /* of queries, keys and values */
    int no_bias;                 /* nonzero: nothing is added to products */
    int no_scale;    /* nonzero: scores are not divided by sqrt(U / H) */
    int no_out;      /* nonzero: without the last product */
    fleet_var *mask; /* as fleet_masked_softmax() takes it for scores [B, H, L,
                        M]: [B, 1, 1, M] of keys, [B, 1, L, M]; NULL: all
                        count */
    float dropout;   /* of the weights of values, in training: [0, 1) */
    int causal;      /* nonzero: query l counts keys 0 to l alone; L = M */
} fleet_attention_options;

/* fleet_multi_head_attention - each query takes a mean of the values, weighted
 * by the softmax of its dots with the keys, in each of H heads (Vaswani et al.
 * 2017).
 *
 *   query  [B, L, N]
 *   key    [B, M, N']  NULL: the query, which then is value, too
 *   value  [B, M, N''] NULL: the key
 *   out    [B, L, U]
 *
 * Parameters "<name>.q" [N, U], "<name>.k", "<name>.v", and of the last product
 * "<name>.out" [U, U]; their biases "<name>.q_bias", ... [U]. options may be
 * NULL. */
FLEET_API fleet_var *fleet_multi_head_attention(
    fleet_program *program, fleet_var *query, fleet_var *key, fleet_var *value,
    const fleet_attention_options *options);

#ifdef __cplusplus
}
#endif

#endif
