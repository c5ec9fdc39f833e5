/* rule_simd.c - the loops of the update rules (rule.h) on CPUs: each formula of
 * rule_formulas.h over a dense range, and over rows. */
#include "runtime/simd/row_hash.h"
#include "runtime/simd/simd.h"
#include "runtime/simd/vec.h"

#define FL_FORMULA static inline __attribute__((always_inline))
#include "runtime/optim/rule_formulas.h"

enum { AHEAD = 16 }; /* rows asked for before they are needed */
enum { HEAD = sizeof(fl_row_head) / sizeof(float) };

static inline void count_step(const fl_update *u, fl_spread *v, float *w)
{
    fl_row_head *head = fl_row_of(w);
    uint32_t t = ++head->step;

    head->changed_at = u->version;
    if (u->n_correct == 0)
        return;
    if (t >= u->n_correct)
        t = u->n_correct - 1;
    v->correct_a = v_set(u->correct_a_at[t]);
    v->correct_b = v_set(u->correct_b_at[t]);
}

/* What a row had before it changes, of u->hash. */
typedef struct row_before {
    uint64_t mixed;
    fl_hash_vec hash;
} row_before;

FL_FORMULA void hash_before(const fl_update *u, int64_t r, const float *w,
                            row_before *b)
{
    if (!u->hash)
        return;
    b->mixed = fl_mix(u->hash->key[r]);
    fl_hash_row(&b->hash, b->mixed, w, u->hash->words);
}

FL_FORMULA void hash_after(const fl_update *u, const float *w,
                           const row_before *b)
{
    fl_hash_vec now, *at;

    if (!u->hash)
        return;
    at = (fl_hash_vec *)(void *)u->hash->to[b->mixed >> FL_HASH_SHIFT];
    fl_hash_row(&now, b->mixed, w, u->hash->words);
    *at += now - b->hash;
}

FL_FORMULA fl_rule_cell load_cell(const float *w, const float *s0,
                                  const float *s1, int n_state, int k)
{
    fl_rule_cell x = {.w = v_load_row(w, k)};

    if (n_state > 0)
        x.s[0] = v_load_row(s0, k);
    if (n_state > 1)
        x.s[1] = v_load_row(s1, k);
    return x;
}

FL_FORMULA void store_cell(const fl_rule_cell *x, float *w, float *s0,
                           float *s1, int n_state, int k)
{
    if (n_state > 0)
        v_store_row(s0, x->s[0], k);
    if (n_state > 1)
        v_store_row(s1, x->s[1], k);
    v_store_row(w, x->w, k);
}

/* k lanes at w, by the update v; their new weights go to `to`. The loops give
 * the k of a whole vector as a constant, so that its loads do not branch. */
#define STEP(name, n_state, to, w, g, s0, s1, k)                               \
    do {                                                                       \
        fl_rule_cell x_ = load_cell(w, s0, s1, n_state, k);                    \
                                                                               \
        fl_formula_##name(&v, &x_, v_load_row(g, k));                          \
        store_cell(&x_, to, s0, s1, n_state, k);                               \
    } while (0)

/* A loop for updates that are shaped, and a loop for updates that are not: no
 * loop asks at each vector. */
#define DENSE(name, n_state, to)                                               \
    FL_FORMULA void name##_dense_as(const fl_update *u, float *w,              \
                                    const float *g, float *const *state,       \
                                    int64_t n, bool shaped)                    \
    {                                                                          \
        fl_spread v = fl_spread_of(u);                                         \
                                                                               \
        v.shaped = shaped;                                                     \
        FL_FOR_VEC(i, k, n)                                                    \
        {                                                                      \
            float *s0 = (n_state) > 0 ? state[0] + i : NULL;                   \
            float *s1 = (n_state) > 1 ? state[1] + i : NULL;                   \
                                                                               \
            if (k == FL_VW)                                                    \
                STEP(name, n_state, (to) + i, w + i, g + i, s0, s1, FL_VW);    \
            else                                                               \
                STEP(name, n_state, (to) + i, w + i, g + i, s0, s1, (int)k);   \
        }                                                                      \
    }                                                                          \
    static void name##_dense(const fl_update *u, float *w, const float *g,     \
                             float *const *state, int64_t n)                   \
    {                                                                          \
        if (fl_update_is_shaped(u))                                            \
            name##_dense_as(u, w, g, state, n, true);                          \
        else                                                                   \
            name##_dense_as(u, w, g, state, n, false);                         \
    }

#define ROWS(name, n_state)                                                    \
    FL_FORMULA void name##_rows_as(const fl_update *u, float *const *w,        \
                                   const float *const *g, int64_t n,           \
                                   int64_t dim, bool shaped)                   \
    {                                                                          \
        fl_spread v = fl_spread_of(u);                                         \
        row_before b = {0};                                                    \
                                                                               \
        v.shaped = shaped;                                                     \
        for (int64_t r = 0; r < n; r++) {                                      \
            if (r + AHEAD < n) {                                               \
                v_prefetch(w[r + AHEAD] - HEAD, HEAD + (1 + (n_state)) * dim); \
                __builtin_prefetch(g[r + AHEAD]);                              \
            }                                                                  \
            hash_before(u, r, w[r], &b);                                       \
            count_step(u, &v, w[r]);                                           \
            FL_FOR_VEC(i, k, dim)                                              \
            {                                                                  \
                float *at = w[r] + i, *s0 = at + dim, *s1 = s0 + dim;          \
                                                                               \
                if (k == FL_VW)                                                \
                    STEP(name, n_state, at, at, g[r] + i, s0, s1, FL_VW);      \
                else                                                           \
                    STEP(name, n_state, at, at, g[r] + i, s0, s1, (int)k);     \
            }                                                                  \
            hash_after(u, w[r], &b);                                           \
        }                                                                      \
    }                                                                          \
    static void name##_rows(const fl_update *u, float *const *w,               \
                            const float *const *g, int64_t n, int64_t dim)     \
    {                                                                          \
        if (fl_update_is_shaped(u))                                            \
            name##_rows_as(u, w, g, n, dim, true);                             \
        else                                                                   \
            name##_rows_as(u, w, g, n, dim, false);                            \
    }

#define FL_RULE(KIND, name, n_state, n_row, ...) DENSE(name, n_state, w)
#define FL_ROW_RULE(KIND, name, ...)
#include "runtime/optim/rules.def"
#define FL_RULE(KIND, name, n_state, n_row, ...) ROWS(name, n_state)
#define FL_ROW_RULE(KIND, name, ...)
#include "runtime/optim/rules.def"

/* --- rules of whole rows -------------------------------------------------- */

enum { N_SUM = FL_ROW_LANES / FL_VW }; /* vectors of partial sums */

typedef struct row_sums {
    vf of[FL_MAX_ROW][N_SUM];
} row_sums;

/* Lane i of all vectors is partial sum i. */
static inline float sum_lanes(const vf *part)
{
    vf half[N_SUM];

    memcpy(half, part, sizeof half);
    for (int n = N_SUM / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            half[i] = v_add(half[i], half[i + n]);
    return v_sum(half[0]);
}

/* Lanes beyond k have no column: their terms are not 0 where the row's numbers
 * are in them. */
FL_FORMULA void add_terms(row_sums *s, const fl_row_terms *t, int n_row,
                          int64_t i, int k)
{
    for (int j = 0; j < n_row; j++) {
        vf *sum = &s->of[j][i / FL_VW % N_SUM];

        *sum = v_add(*sum, k == FL_VW ? t->of[j] : v_first_lanes(t->of[j], k));
    }
}

#define ROW_ROWS_AS(name, n_row, as, shaped)                                   \
    FL_FORMULA vf name##_gradient##as(const fl_spread *v, const float *w,      \
                                      const float *g, int k)                   \
    {                                                                          \
        return fl_formula_gradient_as(v, v_load_row(g, k), v_load_row(w, k),   \
                                      shaped);                                 \
    }                                                                          \
    static void name##_sums##as(const fl_spread *v, fl_row_numbers *r,         \
                                const float *w, const float *g, int64_t dim)   \
    {                                                                          \
        row_sums s;                                                            \
                                                                               \
        for (int j = 0; j < (n_row); j++)                                      \
            for (int i = 0; i < N_SUM; i++)                                    \
                s.of[j][i] = v_set(0.0f);                                      \
        FL_FOR_VEC(i, k, dim)                                                  \
        {                                                                      \
            vf d = name##_gradient##as(v, w + i, g + i, (int)k);               \
            fl_row_terms t = fl_terms_##name(v, r, d);                         \
                                                                               \
            add_terms(&s, &t, n_row, i, (int)k);                               \
        }                                                                      \
        for (int j = 0; j < (n_row); j++)                                      \
            r->mean[j] = sum_lanes(s.of[j]) / (float)dim;                      \
    }                                                                          \
    static void name##_rows##as(const fl_update *u, float *const *w,           \
                                const float *const *g, int64_t n, int64_t dim) \
    {                                                                          \
        fl_spread v = fl_spread_of(u);                                         \
        row_before b = {0};                                                    \
                                                                               \
        for (int64_t r = 0; r < n; r++) {                                      \
            float *number = w[r] + dim;                                        \
            fl_row_numbers x;                                                  \
                                                                               \
            if (r + AHEAD < n) {                                               \
                v_prefetch(w[r + AHEAD] - HEAD, HEAD + dim + (n_row));         \
                __builtin_prefetch(g[r + AHEAD]);                              \
            }                                                                  \
            hash_before(u, r, w[r], &b);                                       \
            count_step(u, &v, w[r]);                                           \
            memcpy(x.was, number, (n_row) * sizeof *number);                   \
            name##_sums##as(&v, &x, w[r], g[r], dim);                          \
            fl_state_##name(&x);                                               \
            memcpy(number, x.now, (n_row) * sizeof *number);                   \
            FL_FOR_VEC(i, k, dim)                                              \
            {                                                                  \
                float *at = w[r] + i;                                          \
                vf d = name##_gradient##as(&v, at, g[r] + i, (int)k);          \
                vf new = fl_weight_##name(&v, &x, v_load_row(at, (int)k), d);  \
                                                                               \
                v_store_row(at, new, (int)k);                                  \
            }                                                                  \
            hash_after(u, w[r], &b);                                           \
        }                                                                      \
    }

#define ROW_ROWS(name, n_row)                                                  \
    ROW_ROWS_AS(name, n_row, _plain, false)                                    \
    ROW_ROWS_AS(name, n_row, _shaped, true)                                    \
    static void name##_rows(const fl_update *u, float *const *w,               \
                            const float *const *g, int64_t n, int64_t dim)     \
    {                                                                          \
        if (fl_update_is_shaped(u))                                            \
            name##_rows_shaped(u, w, g, n, dim);                               \
        else                                                                   \
            name##_rows_plain(u, w, g, n, dim);                                \
    }

#define FL_RULE(KIND, name, n_state, n_row, ...)
#define FL_ROW_RULE(KIND, name, n_row, ...) ROW_ROWS(name, n_row)
#include "runtime/optim/rules.def"

static void bound_rows(float low, float high, float *const *w, int64_t n,
                       int64_t dim)
{
    vf least = v_set(low), most = v_set(high);

    for (int64_t r = 0; r < n; r++)
        FL_FOR_VEC(i, k, dim)
        {
            vf x = v_max(least, v_load_row(w[r] + i, (int)k));

            v_store_row(w[r] + i, v_min(most, x), (int)k);
        }
}

DENSE(lars, 1, w)
DENSE(lamb, 2, state[2])

const fl_rule_set FL_SIMD(fl_rule_set) = {
    .of =
        {
#define FL_RULE(KIND, name, ...)     [FL_RULE_##KIND] = {name##_dense, name##_rows},
#define FL_ROW_RULE(KIND, name, ...) [FL_RULE_##KIND] = {NULL, name##_rows},
#include "runtime/optim/rules.def"
        },
    .lars = lars_dense,
    .lamb = lamb_dense,
    .bound = bound_rows,
};
