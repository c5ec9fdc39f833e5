/* fc_kernels.c - the kernels of fully connected layers; fc.c says which of them
 * a layer is made of.
 *
 * Rows of x go through forward and dx slice by slice. dW sums over the whole
 * batch; its panels of rows are shared out. With few units (FL_SMALL_N) oneDNN
 * is ten times slower than a plain dot product, so these have kernels of their
 * own.
 */
#include <fleet/nn.h>

#include "ops/dnnl.h"
#include "ops/fc_kernels.h"
#include "ops/ops.h"
#include "runtime/simd/simd.h"

static const fl_fc_config *config_of(const fl_instance *in)
{
    return in->step->config;
}

/* A kernel's state: one product, or two when the last panel is narrower. */
typedef struct fc_state {
    fl_matmul *matmul, *last;
    int64_t panel;
} fc_state;

static fleet_status make_matmul(fl_instance *in, fl_matmul **m,
                                const fl_matmul_spec *spec)
{
    FL_TRY(fl_matmul_create(m, spec, in->n_thread));
    if (fl_matmul_scratch(*m) > in->scratch_size)
        in->scratch_size = fl_matmul_scratch(*m);
    return FLEET_OK;
}

static void fc_finish(fl_instance *in)
{
    fc_state *s = in->state;

    fl_matmul_destroy(s->matmul);
    fl_matmul_destroy(s->last);
}

/* Rows a product must be made for: whole slices, see kernel.h. */
static int64_t slice_rows(const fl_instance *in, int i)
{
    return in->slice * in->arg[i].factor;
}

/* Not of FLEET_LINEAR. */
static const fl_activation_simd *activation_of(const fl_fc_config *c)
{
    return &fl_simd_best()->activation[c->activation.kind];
}

static fl_numbers numbers_of(const fl_instance *in, int i, const fl_range *r)
{
    return (fl_numbers){fl_rows_any(in, i, r), fl_is_bf16(in, i)};
}

/* Element `at` of an operand, whatever its type. */
static void *element(const fl_instance *in, int i, int64_t at)
{
    return (char *)fl_ptr(in, i) +
           (size_t)at * fleet_dtype_size(in->arg[i].dtype);
}

#define BIT(operand) (1u << (operand))

/* --- fc.forward: out <- x, W, b ------------------------------------------ */

enum { F_OUT, F_X, F_W, F_B };

static fleet_status forward_prepare(fl_instance *in)
{
    const fl_fc_config *c = config_of(in);
    bool fused = fl_matmul_activates(c->activation.kind);
    fc_state *s = in->state;

    return make_matmul(in, &s->matmul,
                       &(fl_matmul_spec){.m = slice_rows(in, F_X),
                                         .n = c->n,
                                         .k = c->k,
                                         .bias = c->bias,
                                         .activation = fused
                                                           ? c->activation.kind
                                                           : FLEET_LINEAR,
                                         .lda = in->arg[F_X].ld,
                                         .ldb = in->arg[F_W].ld,
                                         .ldc = in->arg[F_OUT].ld,
                                         .bf16 = fl_is_bf16(in, F_X),
                                         .bf16_out = fl_is_bf16(in, F_OUT)});
}

static fleet_status forward_run(const fl_instance *in, const fl_range *r)
{
    const fl_fc_config *c = config_of(in);
    const fc_state *s = in->state;
    void *y = fl_rows_any(in, F_OUT, r);

    FL_TRY(fl_matmul_run(s->matmul, r->thread, fl_rows_any(in, F_X, r),
                         fl_ptr(in, F_W), c->bias ? fl_ptr(in, F_B) : NULL, y,
                         r->scratch));
    if (fl_matmul_activates(c->activation.kind))
        return FLEET_OK;
    if (fl_is_bf16(in, F_OUT))
        activation_of(c)->forward_bf16(y, c->activation.alpha,
                                       fl_count(in, F_OUT, r));
    else
        activation_of(c)->forward(y, y, c->activation.alpha,
                                  fl_count(in, F_OUT, r));
    return FLEET_OK;
}

const fl_kernel fl_kernel_fc_forward = {
    .name = "fc.forward",
    .split = FL_SPLIT_ROWS,
    .state_size = sizeof(fc_state),
    .prepare = forward_prepare,
    .finish = fc_finish,
    .run = forward_run,
    .takes_half = BIT(F_OUT) | BIT(F_X) | BIT(F_W),
    .wants_half = BIT(F_X) | BIT(F_W),
};

/* --- fc.small.forward ---------------------------------------------------- */

static fleet_status small_prepare(fl_instance *in)
{
    const fl_fc_config *c = config_of(in);

    in->scratch_size = (size_t)(c->k * c->n) * sizeof(float);
    return FLEET_OK;
}

/* W transposed into the scratch, where its units are rows. */
static const float *transposed(const fl_instance *in, int w, const fl_range *r)
{
    const fl_fc_config *c = config_of(in);

    fl_simd_best()->transpose(r->scratch, c->k, fl_ptr(in, w), c->n, c->k,
                              c->n);
    return r->scratch;
}

static fleet_status small_forward_run(const fl_instance *in, const fl_range *r)
{
    const fl_fc_config *c = config_of(in);
    float *y = fl_rows_f32(in, F_OUT, r);

    fl_simd_best()->small_forward(&(fl_small_fc_args){
        .x = fl_rows_f32(in, F_X, r),
        .ldx = in->arg[F_X].ld,
        .y = y,
        .ldy = in->arg[F_OUT].ld,
        .wt = transposed(in, F_W, r),
        .bias = c->bias ? fl_ptr(in, F_B) : NULL,
        .rows = fl_range_rows(in, F_X, r),
        .k = c->k,
        .n = (int)c->n,
    });
    if (c->activation.kind != FLEET_LINEAR)
        activation_of(c)->forward(y, y, c->activation.alpha,
                                  fl_count(in, F_OUT, r));
    return FLEET_OK;
}

const fl_kernel fl_kernel_fc_small_forward = {
    .name = "fc.small.forward",
    .split = FL_SPLIT_ROWS,
    .prepare = small_prepare,
    .run = small_forward_run,
};

/* --- fc.mask: g is multiplied by the activation's derivative, from out ---- */

enum { M_G, M_OUT };

static fleet_status mask_run(const fl_instance *in, const fl_range *r)
{
    const fl_fc_config *c = config_of(in);
    int64_t n = fl_count(in, M_G, r);

    if (fl_is_bf16(in, M_G) || fl_is_bf16(in, M_OUT)) {
        fl_numbers g = numbers_of(in, M_G, r);

        activation_of(c)->gradient_any(g, numbers_of(in, M_OUT, r), g,
                                       c->activation.alpha, n);
    } else {
        float *g = fl_rows_f32(in, M_G, r);

        activation_of(c)->gradient(g, fl_rows_f32(in, M_OUT, r), g,
                                   c->activation.alpha, n);
    }
    return FLEET_OK;
}

const fl_kernel fl_kernel_fc_mask = {
    .name = "fc.mask",
    .split = FL_SPLIT_ROWS,
    .run = mask_run,
    .takes_half = BIT(M_G) | BIT(M_OUT),
};

/* --- fc.pack: W transposed, once for all slices of fc.dx ------------------ */

enum { PACK_ROWS = 64 };

static fleet_status pack_prepare(fl_instance *in)
{
    in->n_part = (int)((config_of(in)->k + PACK_ROWS - 1) / PACK_ROWS);
    return FLEET_OK;
}

static fleet_status pack_run(const fl_instance *in, const fl_range *r)
{
    const fl_fc_config *c = config_of(in);
    int64_t at = r->begin * PACK_ROWS, left = c->k - at;

    fl_simd_best()->transpose((float *)fl_ptr(in, 0) + at, in->arg[0].ld,
                              (const float *)fl_ptr(in, 1) + at * c->n, c->n,
                              left < PACK_ROWS ? left : PACK_ROWS, c->n);
    return FLEET_OK;
}

const fl_kernel fl_kernel_fc_pack = {
    .name = "fc.pack",
    .split = FL_SPLIT_PARTS,
    .prepare = pack_prepare,
    .run = pack_run,
};

/* --- fc.dx: dx <- g, W or its transpose ---------------------------------- */

enum { X_DX, X_G, X_W };

static fleet_status dx_prepare(fl_instance *in)
{
    const fl_fc_config *c = config_of(in);
    fc_state *s = in->state;

    return make_matmul(in, &s->matmul,
                       &(fl_matmul_spec){.m = slice_rows(in, X_G),
                                         .n = c->k,
                                         .k = c->n,
                                         .tb = !c->packed,
                                         .lda = in->arg[X_G].ld,
                                         .ldb = in->arg[X_W].ld,
                                         .ldc = in->arg[X_DX].ld,
                                         .bf16 = fl_is_bf16(in, X_G),
                                         .bf16_out = fl_is_bf16(in, X_DX)});
}

static fleet_status dx_run(const fl_instance *in, const fl_range *r)
{
    const fc_state *s = in->state;

    return fl_matmul_run(s->matmul, r->thread, fl_rows_any(in, X_G, r),
                         fl_ptr(in, X_W), NULL, fl_rows_any(in, X_DX, r),
                         r->scratch);
}

const fl_kernel fl_kernel_fc_dx = {
    .name = "fc.dx",
    .split = FL_SPLIT_ROWS,
    .state_size = sizeof(fc_state),
    .prepare = dx_prepare,
    .finish = fc_finish,
    .run = dx_run,
    .takes_half = BIT(X_DX) | BIT(X_G) | BIT(X_W),
    .wants_half = BIT(X_G) | BIT(X_W),
};

static fleet_status small_dx_run(const fl_instance *in, const fl_range *r)
{
    const fl_fc_config *c = config_of(in);

    fl_simd_best()->small_dx(&(fl_small_fc_args){
        .x = fl_rows_f32(in, X_DX, r),
        .ldx = in->arg[X_DX].ld,
        .y = fl_rows_f32(in, X_G, r),
        .ldy = in->arg[X_G].ld,
        .wt = transposed(in, X_W, r),
        .rows = fl_range_rows(in, X_G, r),
        .k = c->k,
        .n = (int)c->n,
    });
    return FLEET_OK;
}

const fl_kernel fl_kernel_fc_small_dx = {
    .name = "fc.small.dx",
    .split = FL_SPLIT_ROWS,
    .prepare = small_prepare,
    .run = small_dx_run,
};

/* --- fc.dw: dW <- x, g; a part is a panel of W's rows --------------------- */

enum { W_DW, W_X, W_G };

/* Panels: enough for eight threads if each has half a million operations, but
 * not so narrow that oneDNN becomes slow. */
static int64_t panel_rows(int64_t k, int64_t n, int64_t batch)
{
    enum { GRAIN = 16, LEAST = 64, MOST = 8 };
    double parts = 2.0 * (double)k * (double)n * (double)batch / 5e5;
    int64_t most = k / LEAST < MOST ? k / LEAST : MOST;
    int64_t count = parts > (double)most ? most : (int64_t)parts, panel;

    if (count < 1)
        return k;
    panel = (k + count - 1) / count;
    return (panel + GRAIN - 1) / GRAIN * GRAIN;
}

static fl_matmul_spec dw_spec(const fl_instance *in, int64_t rows)
{
    return (fl_matmul_spec){.m = rows,
                            .n = config_of(in)->n,
                            .k = in->batch * in->arg[W_X].factor,
                            .ta = true,
                            .lda = in->arg[W_X].ld,
                            .ldb = in->arg[W_G].ld,
                            .ldc = in->arg[W_DW].ld,
                            .bf16 = fl_is_bf16(in, W_X)};
}

static fleet_status dw_prepare(fl_instance *in)
{
    const fl_fc_config *c = config_of(in);
    fc_state *s = in->state;
    fl_matmul_spec spec;
    int64_t last;

    s->panel = panel_rows(c->k, c->n, in->batch);
    in->n_part = (int)((c->k + s->panel - 1) / s->panel);
    last = c->k - (in->n_part - 1) * s->panel;
    spec = dw_spec(in, last);
    FL_TRY(make_matmul(in, &s->last, &spec));
    if (in->n_part == 1)
        return FLEET_OK;
    spec = dw_spec(in, s->panel);
    return make_matmul(in, &s->matmul, &spec);
}

static fleet_status dw_run(const fl_instance *in, const fl_range *r)
{
    const fc_state *s = in->state;
    fl_matmul *m = r->begin + 1 < in->n_part ? s->matmul : s->last;
    int64_t at = r->begin * s->panel;

    return fl_matmul_run(m, r->thread, element(in, W_X, at), fl_ptr(in, W_G),
                         NULL, element(in, W_DW, at * in->arg[W_DW].ld),
                         r->scratch);
}

const fl_kernel fl_kernel_fc_dw = {
    .name = "fc.dw",
    .split = FL_SPLIT_PARTS,
    .state_size = sizeof(fc_state),
    .prepare = dw_prepare,
    .finish = fc_finish,
    .run = dw_run,
    .whole_batch = true,
    .takes_half = BIT(W_X) | BIT(W_G),
    .wants_half = BIT(W_X) | BIT(W_G),
};

enum { SMALL_PANEL = 64 };

static fleet_status small_dw_prepare(fl_instance *in)
{
    in->n_part = (int)((config_of(in)->k + SMALL_PANEL - 1) / SMALL_PANEL);
    return FLEET_OK;
}

static fleet_status small_dw_run(const fl_instance *in, const fl_range *r)
{
    const fl_fc_config *c = config_of(in);
    int64_t at = r->begin * SMALL_PANEL, left = c->k - at;

    fl_simd_best()->small_dw(
        &(fl_small_fc_args){
            .x = (float *)fl_ptr(in, W_X) + at,
            .ldx = in->arg[W_X].ld,
            .y = fl_ptr(in, W_G),
            .ldy = in->arg[W_G].ld,
            .rows = r->batch * in->arg[W_X].factor,
            .k = left < SMALL_PANEL ? left : SMALL_PANEL,
            .n = (int)c->n,
        },
        (float *)fl_ptr(in, W_DW) + at * c->n);
    return FLEET_OK;
}

const fl_kernel fl_kernel_fc_small_dw = {
    .name = "fc.small.dw",
    .split = FL_SPLIT_PARTS,
    .prepare = small_dw_prepare,
    .run = small_dw_run,
};

/* --- fc.db: db <- g; a part is some columns ------------------------------ */

enum { B_DB, B_G, BIAS_COLS = 64 };

static fleet_status db_prepare(fl_instance *in)
{
    in->n_part = (int)((config_of(in)->n + BIAS_COLS - 1) / BIAS_COLS);
    return FLEET_OK;
}

static fleet_status db_run(const fl_instance *in, const fl_range *r)
{
    const fl_simd *simd = fl_simd_best();
    int64_t at = r->begin * BIAS_COLS, left = config_of(in)->n - at;
    int64_t cols = left < BIAS_COLS ? left : BIAS_COLS, ld = in->arg[B_G].ld;
    int64_t rows = r->batch * in->arg[B_G].factor;
    float *out = element(in, B_DB, at);
    const void *g = element(in, B_G, at);

    if (fl_is_bf16(in, B_G))
        simd->col_sum_bf16(out, g, ld, rows, cols);
    else
        simd->col_sum(out, g, ld, rows, cols);
    return FLEET_OK;
}

const fl_kernel fl_kernel_fc_db = {
    .name = "fc.db",
    .split = FL_SPLIT_PARTS,
    .prepare = db_prepare,
    .run = db_run,
    .takes_half = BIT(B_G),
};
