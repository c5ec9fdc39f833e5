/* shape.c - shapes: products, comparison, text. */
#include "runtime/graph/shape.h"

#include <inttypes.h>
#include <stdio.h>

fl_shape fl_shape_make(const int64_t *dims, int n_dim)
{
    fl_shape s = {.n_dim = n_dim};

    for (int i = 0; i < n_dim; i++)
        s.dim[i] = dims[i];
    return s;
}

fl_shape fl_shape_1(int64_t a)
{
    return (fl_shape){1, {a}};
}

fl_shape fl_shape_2(int64_t a, int64_t b)
{
    return (fl_shape){2, {a, b}};
}

static fl_shape_text print_dims(const int64_t *dims, int n_dim)
{
    fl_shape_text t = {"["};
    size_t used = 1;

    for (int i = 0; i < n_dim && used < sizeof t.chars - 24; i++)
        used += (size_t)snprintf(t.chars + used, sizeof t.chars - used,
                                 "%s%" PRId64, i ? "," : "", dims[i]);
    snprintf(t.chars + used, sizeof t.chars - used, "]");
    return t;
}

fl_shape_text fl_shape_print(const fl_shape *s)
{
    return print_dims(s->dim, s->n_dim);
}

bool fl_shape_equal(const fl_shape *a, const fl_shape *b)
{
    bool same = a->n_dim == b->n_dim;

    for (int i = 0; same && i < a->n_dim; i++)
        same = a->dim[i] == b->dim[i];
    return same;
}

int64_t fl_shape_rows(const fl_shape *s, int64_t batch)
{
    if (s->n_dim == 0)
        return 1;
    return s->dim[0] < 0 ? -s->dim[0] * batch : s->dim[0];
}

int64_t fl_shape_cols(const fl_shape *s)
{
    int64_t n = 1;

    for (int i = 1; i < s->n_dim; i++)
        n *= s->dim[i];
    return n;
}

int64_t fl_shape_count(const fl_shape *s, int64_t batch)
{
    return fl_shape_rows(s, batch) * fl_shape_cols(s);
}

fleet_status fl_shape_check(const char *what, const int64_t *dims, int n_dim)
{
    int64_t n = 1;

    if (!dims || n_dim < 1 || n_dim > FLEET_MAX_DIM)
        return fl_fail(FLEET_ESHAPE, "%s: expected 1 to %d dimensions, got %d",
                       what, (int)FLEET_MAX_DIM, dims ? n_dim : 0);
    for (int i = 0; i < n_dim; i++) {
        bool good = dims[i] > 0 || (i == 0 && dims[i] == -1);

        if (i > 0 && dims[i] == -1)
            return fl_fail(
                FLEET_ESHAPE,
                "%s: dimension %d of %s is -1: only dimension 0, the "
                "batch, may be",
                what, i, print_dims(dims, n_dim).chars);
        if (!good || dims[i] > FL_MOST_DIM ||
            __builtin_mul_overflow(n, dims[i], &n) || n > INT64_MAX / 16 ||
            n < -INT64_MAX / 16)
            return fl_fail(FLEET_ESHAPE,
                           "%s: dimension %d of %s is not possible", what, i,
                           print_dims(dims, n_dim).chars);
    }
    return FLEET_OK;
}

fleet_status fl_shape_check_result(const char *what, const fl_shape *s)
{
    fl_shape one = *s;

    if (!fl_shape_batched(s) || s->dim[0] == -1)
        return fl_shape_check(what, s->dim, s->n_dim);
    one.dim[0] = -1;
    FL_TRY(fl_shape_check(what, one.dim, one.n_dim));
    one.dim[0] = s->dim[0] == INT64_MIN ? INT64_MAX : -s->dim[0];
    return fl_shape_check(what, one.dim, one.n_dim);
}
