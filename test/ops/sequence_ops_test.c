/* sequence_ops_test.c - gru, lstm, sequence_reverse, causal_softmax and
 * in_batch_softmax: against references and finite differences, and what they
 * refuse. */
#define SUITE sequence_ops
#include "op_cases.h"
#include "test.h"
#include "train_kit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ops/ops.h"
#include "runtime/graph/program.h"

/* --- gru ------------------------------------------------------------------ */

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* A step of a sample: h from the state before, which is NULL at first. */
static void ref_step(const double *x, const double *before, const double *w,
                     const double *b, double a, int64_t u, double *h)
{
    for (int64_t j = 0; j < u; j++) {
        double s[3], was = before ? before[j] : 0, r, z, n;

        for (int64_t k = 0; k < 3; k++) {
            s[k] = b[k * u + j];
            for (int64_t i = 0; before && i < u; i++)
                s[k] += before[i] * w[i * 3 * u + k * u + j];
        }
        r = sigmoid(x[j] + s[0]);
        z = sigmoid(x[u + j] + s[1]);
        n = tanh(x[2 * u + j] + r * s[2]);
        h[j] = was + a * (1 - z) * (n - was);
    }
}

static void ref_of(const ref_tensor *const *in, const double *a,
                   ref_tensor *out)
{
    int64_t len = out->dim[1], u = out->dim[2];

    for (int64_t i = 0; i < out->dim[0] * len; i++)
        ref_step(in[0]->data + i * 3 * u,
                 i % len ? out->data + (i - 1) * u : NULL, in[1]->data,
                 in[2]->data, a ? a[i] : 1, u, out->data + i * u);
}

static void ref_gru(const ref_tensor *const *in, ref_tensor *out)
{
    ref_of(in, NULL, out);
}

static void ref_augru(const ref_tensor *const *in, ref_tensor *out)
{
    ref_of(in, in[3]->data, out);
}

BUILD(gru, fl_program_add(p, &fl_op_gru, in, 3, NULL, 0))
BUILD(augru, fl_program_add(p, &fl_op_gru, in, 4, NULL, 0))

/* --- lstm ----------------------------------------------------------------- */

/* A unit: its four numbers of x and of b, and what the states give. */
static double ref_gate(const double *x, const double *before, const double *w,
                       const double *b, int64_t u, int64_t j, int gate)
{
    double s = x[gate * u + j] + b[gate * u + j];

    for (int64_t i = 0; before && i < u; i++)
        s += before[i] * w[i * 4 * u + gate * u + j];
    return s;
}

/* The same, with a cell. */
static void ref_lstm_step(const double *x, const double *before,
                          const double *w, const double *b, double a, int64_t u,
                          double *h, double *cell)
{
    for (int64_t j = 0; j < u; j++) {
        double i = sigmoid(ref_gate(x, before, w, b, u, j, 0));
        double f = sigmoid(ref_gate(x, before, w, b, u, j, 1));
        double g = tanh(ref_gate(x, before, w, b, u, j, 2));
        double o = sigmoid(ref_gate(x, before, w, b, u, j, 3));
        double was = before ? before[j] : 0, c = f * cell[j] + i * g;

        cell[j] += a * (c - cell[j]);
        h[j] = was + a * (o * tanh(c) - was);
    }
}

static void ref_lstm_of(const ref_tensor *const *in, const double *a,
                        ref_tensor *out)
{
    int64_t len = out->dim[1], u = out->dim[2];
    double *cell = malloc((size_t)u * sizeof *cell);

    for (int64_t i = 0; i < out->dim[0] * len; i++) {
        bool first = i % len == 0;

        for (int64_t j = 0; first && j < u; j++)
            cell[j] = 0;
        ref_lstm_step(in[0]->data + i * 4 * u,
                      first ? NULL : out->data + (i - 1) * u, in[1]->data,
                      in[2]->data, a ? a[i] : 1, u, out->data + i * u, cell);
    }
    free(cell);
}

static void ref_lstm(const ref_tensor *const *in, ref_tensor *out)
{
    ref_lstm_of(in, NULL, out);
}

static void ref_lstm_weighted(const ref_tensor *const *in, ref_tensor *out)
{
    ref_lstm_of(in, in[3]->data, out);
}

BUILD(lstm, fl_program_add(p, &fl_op_lstm, in, 3, NULL, 0))
BUILD(lstm_weighted, fl_program_add(p, &fl_op_lstm, in, 4, NULL, 0))

/* --- reverse -------------------------------------------------------------- */

/* Places of a sample whose mask, ids below 3, begins without 0; NULL: all. */
static void reversed(const ref_tensor *x, const double *mask, ref_tensor *out)
{
    int64_t len = x->dim[1], cols = x->count / x->dim[0] / len;

    for (int64_t i = 0; i < x->dim[0]; i++) {
        int64_t n = 0;

        while (n < len && (!mask || mask[i * len + n] != 0))
            n++;
        for (int64_t t = 0; t < len; t++)
            memcpy(out->data + (i * len + t) * cols,
                   x->data + (i * len + (t < n ? n - 1 - t : t)) * cols,
                   (size_t)cols * sizeof *x->data);
    }
}

static void ref_reverse(const ref_tensor *const *in, ref_tensor *out)
{
    reversed(in[0], NULL, out);
}

static void ref_reverse_masked(const ref_tensor *const *in, ref_tensor *out)
{
    reversed(in[0], in[1]->data, out);
}

BUILD(reverse, fleet_sequence_reverse(p, in[0], NULL))
BUILD(reverse_masked, fleet_sequence_reverse(p, in[0], fleet_cast(p, in[1])))

/* --- softmax -------------------------------------------------------------- */

static void causal(const ref_tensor *x, const double *mask, int64_t heads,
                   ref_tensor *out)
{
    int64_t n = x->dim[x->n_dim - 1];

    for (int64_t l = 0; l < x->count / n; l++) {
        const double *line = x->data + l * n,
                     *m = mask ? mask + l / n / heads * n : NULL;
        double sum = 0;

        for (int64_t j = 0; j <= l % n; j++)
            sum += !m || m[j] > 0 ? exp(line[j]) : 0;
        for (int64_t j = 0; j < n; j++)
            out->data[l * n + j] =
                j <= l % n && (!m || m[j] > 0) ? exp(line[j]) / sum : 0;
    }
}

static void ref_causal(const ref_tensor *const *in, ref_tensor *out)
{
    causal(in[0], NULL, 1, out);
}

static void ref_causal_masked(const ref_tensor *const *in, ref_tensor *out)
{
    causal(in[0], in[1]->data, 2, out);
}

/* 0 and 1 as numbers, without a gradient. */
static fleet_var *mask_of(fleet_program *p, fleet_var *ids, int64_t n)
{
    return fleet_reshape(p, fleet_cast(p, ids), (int64_t[]){-1, 1, 1, n}, 4);
}

BUILD(causal, fleet_causal_softmax(p, in[0], NULL))
BUILD(causal_masked, fleet_causal_softmax(p, in[0], mask_of(p, in[1], 5)))

/* --- the batch's items ---------------------------------------------------- */

/* ids, log q: NULL, none. */
static void in_batch(const ref_tensor *u, const ref_tensor *v,
                     const double *ids, const double *log_q, double t,
                     ref_tensor *out)
{
    int64_t n = u->dim[0], dim = u->dim[1];

    for (int64_t i = 0; i < n; i++) {
        double sum = 0, own = 0;

        for (int64_t j = 0; j < n; j++) {
            double s = log_q ? -log_q[j] : 0;

            for (int64_t d = 0; d < dim; d++)
                s += u->data[i * dim + d] * v->data[j * dim + d] / t;
            own = i == j ? s : own;
            if (i == j || !ids || ids[i] != ids[j])
                sum += exp(s);
        }
        out->data[i] = log(sum) - own;
    }
}

static void ref_in_batch(const ref_tensor *const *in, ref_tensor *out)
{
    in_batch(in[0], in[1], NULL, NULL, 1, out);
}

static void ref_corrected(const ref_tensor *const *in, ref_tensor *out)
{
    double *log_q = malloc((size_t)in[2]->count * sizeof *log_q);

    for (int64_t i = 0; i < in[2]->count; i++)
        log_q[i] = 0.25 * in[2]->data[i] - 1;
    in_batch(in[0], in[1], in[2]->data, log_q, 0.5, out);
    free(log_q);
}

BUILD(in_batch, fleet_in_batch_softmax(p, in[0], in[1], NULL))
BUILD(corrected,
      fleet_in_batch_softmax(p, in[0], in[1],
                             &(fleet_in_batch_options){
                                 .item_ids = in[2],
                                 .log_q = fleet_scale(p, fleet_cast(p, in[2]),
                                                      0.25f, -1),
                                 .temperature = 0.5f}))

const op_case sequence_cases[] = {
    {"gru", "of three units", IN(3, DATA3(3, 9), PARAM2(3, 9), PARAM1(9)),
     build_gru, ref_gru, 0, false},
    {"gru", "of two units, with weights",
     IN(4, DATA3(4, 6), PARAM2(2, 6), PARAM1(6), WITHIN(4, 0, 1)), build_augru,
     ref_augru, 0, false},
    {"lstm", "of three units", IN(3, DATA3(3, 12), PARAM2(3, 12), PARAM1(12)),
     build_lstm, ref_lstm, 0, false},
    {"lstm", "of two units, with weights",
     IN(4, DATA3(4, 8), PARAM2(2, 8), PARAM1(8), WITHIN(4, 0, 1)),
     build_lstm_weighted, ref_lstm_weighted, 0, false},
    {"sequence_reverse", "of numbers", IN(1, DATA2(5)), build_reverse,
     ref_reverse, 0, false},
    {"sequence_reverse", "of vectors, with a mask",
     IN(2, DATA3(4, 3), IDS(4, 3)), build_reverse_masked, ref_reverse_masked, 0,
     false},
    {"causal_softmax", "of two heads", IN(1, DATA4(2, 5, 5)), build_causal,
     ref_causal, 0, false},
    {"causal_softmax", "with a mask", IN(2, DATA4(2, 5, 5), IDS(5, 2)),
     build_causal_masked, ref_causal_masked, 0, false},
    {"in_batch_softmax", "", IN(2, DATA2(3), DATA2(3)), build_in_batch,
     ref_in_batch, 0, false},
    {"in_batch_softmax", "corrected, without what is the sample's own",
     IN(3, DATA2(3), DATA2(3), IDS(1, 20)), build_corrected, ref_corrected, 0,
     false},
    END_OF_CASES,
};

TEST(agree_with_their_references_for_one_sample)
{
    check_cases(sequence_cases, 1, 1);
}

TEST_LIMIT(agree_with_their_references_for_several_slices, 180)
{
    check_cases(sequence_cases, 70, 3);
}

TEST(agree_with_their_references_in_plain_c)
{
    setenv("FLEET_ISA", "plain", 1);
    check_cases(sequence_cases, 37, 2);
}

/* --- what is refused ------------------------------------------------------ */

static void more_inputs(fleet_program *p, fleet_var **in)
{
    in[1] =
        fleet_reshape(p, kit_data(p, "places", 24), (int64_t[]){-1, 4, 6}, 3);
}

static fleet_var *kit_steps(fleet_program *p)
{
    return fleet_reshape(p, kit_data(p, "steps", 24), (int64_t[]){-1, 3, 8}, 3);
}

static fleet_var *kit_matrix(fleet_program *p, const char *name)
{
    return fleet_parameter(p, (int64_t[]){3, 8}, 2,
                           &(fleet_param_attr){.name = name});
}

BUILD(gru_flat, fleet_gru(p, in[0], 3, NULL, NULL))
BUILD(gru_units, fleet_gru(p, in[1], 0, NULL, NULL))
BUILD(gru_weights, fleet_gru(p, in[1], 3, kit_data(p, "a", 5), NULL))
BUILD(gru_ids, fleet_gru(p, in[1], 3, kit_data_ids(p, "a", 4), NULL))
BUILD(lstm_flat, fleet_lstm(p, in[0], 3, NULL, NULL))
BUILD(lstm_weights, fleet_lstm(p, in[1], 3, kit_data(p, "a", 5), NULL))
BUILD(lstm_matrix,
      fl_program_add(p, &fl_op_lstm,
                     (fleet_var *[]){kit_steps(p), kit_matrix(p, "w"),
                                     kit_matrix(p, "b")},
                     3, NULL, 0))
BUILD(reverse_ids, fleet_sequence_reverse(p, kit_data_ids(p, "i", 4), NULL))
BUILD(reverse_mask, fleet_sequence_reverse(p, in[1], kit_data(p, "m", 5)))
BUILD(causal_flat, fleet_causal_softmax(p, in[0], NULL))
BUILD(causal_wide, fleet_causal_softmax(p, in[1], NULL))
BUILD(users_3, fleet_in_batch_softmax(p, in[1], in[1], NULL))
BUILD(items_size, fleet_in_batch_softmax(p, in[0], kit_data(p, "v", 3), NULL))
BUILD(item_ids,
      fleet_in_batch_softmax(p, in[0], in[0],
                             &(fleet_in_batch_options){
                                 .item_ids = kit_data_ids(p, "i", 2)}))
BUILD(item_log_q, fleet_in_batch_softmax(p, in[0], in[0],
                                         &(fleet_in_batch_options){
                                             .log_q = kit_data_ids(p, "i", 1)}))
BUILD(temperature,
      fleet_in_batch_softmax(p, in[0], in[0],
                             &(fleet_in_batch_options){.temperature = -2}))
TEST(arguments_that_cannot_be_are_refused_by_name)
{
    static const op_refusal refusals[] = {
        {build_gru_flat, FLEET_ESHAPE,
         "gru: \"x\" has shape [-1,4]; expected "
         "[-1,T,D]"},
        {build_gru_units, FLEET_ESHAPE, "gru: cannot have 0 units"},
        {build_gru_weights, FLEET_ESHAPE,
         "gru: \"a\" has shape [-1,5]; expected [-1,T] for"},
        {build_gru_ids, FLEET_EDTYPE, "gru: \"a\" is int64, not float32"},
        {build_lstm_flat, FLEET_ESHAPE,
         "lstm: \"x\" has shape [-1,4]; expected [-1,T,D]"},
        {build_lstm_weights, FLEET_ESHAPE,
         "lstm: \"a\" has shape [-1,5]; expected [-1,T] for"},
        {build_lstm_matrix, FLEET_ESHAPE,
         "lstm: \"w\" has shape [3,8]; expected [H,4 H] for"},
        {build_reverse_ids, FLEET_EDTYPE,
         "sequence_reverse: \"i\" is int64, not float32"},
        {build_reverse_mask, FLEET_ESHAPE,
         "sequence_reverse: \"m\" has shape [-1,5]; expected [-1,T] for"},
        {build_causal_flat, FLEET_ESHAPE,
         "causal_softmax: \"x\" has shape [-1,4]; expected [-1,L,L]"},
        {build_causal_wide, FLEET_ESHAPE, "has shape [-1,4,6]; expected"},
        {build_users_3, FLEET_ESHAPE, "in_batch_softmax: "},
        {build_items_size, FLEET_ESHAPE,
         "users \"x\" [-1,4] and items \"v\" [-1,3]"},
        {build_item_ids, FLEET_ESHAPE,
         "in_batch_softmax: \"i\" has shape [-1,2]; expected [-1,1]"},
        {build_item_log_q, FLEET_EDTYPE, "\"i\" is int64, not float32"},
        {build_temperature, FLEET_EINVAL, "in_batch_softmax: temperature -2"},
    };

    check_refusals(refusals, sizeof refusals / sizeof *refusals, more_inputs);
}
