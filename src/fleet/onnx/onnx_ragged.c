/* onnx_ragged.c - see onnx_ragged.h; sequences, which are ragged variables of a
 * fixed length. */
#include "fleet/onnx/onnx_ragged.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

#include "ops/ops.h"

/* --- inputs --------------------------------------------------------------- */

/* The variable that the offsets are of. */
static const fleet_var *owner_of(const fleet_var *v)
{
    return v->weighs ? v->weighs : v;
}

/* [batch + 1]; an input with the first variable that has them. */
static const char *offsets_of(fl_onnx *x, const fleet_var *owner)
{
    const char *name = fl_onnx_text(x, "%s.offsets", owner->name);
    const char *what = fl_onnx_text(x, "offsets of %s", owner->name);
    const fl_shape shape = fl_shape_1(-1);
    fl_onnx_value *v;

    if (!what || fl_onnx_known(x, what))
        return name;
    if (fleet_program_var(x->program, name))
        return fl_onnx_failed(
            x, fl_fail(FLEET_EEXIST,
                       "onnx: variable \"%s\" has the name of the offsets of "
                       "\"%s\"",
                       name, owner->name));
    v = fl_onnx_value_of(x, name, FL_ONNX_INT64, &shape);
    if (!v)
        return NULL;
    v->text[0] = "batch+1";
    fl_onnx_input(x, v);
    return fl_onnx_remember(x, what, name);
}

void fl_onnx_input_ragged(fl_onnx *x, const fleet_var *v)
{
    const fl_shape shape = fl_shape_1(-1);
    fl_onnx_value *values = fl_onnx_value_of(
        x, v->name, v->dtype == FLEET_INT64 ? FL_ONNX_INT64 : FL_ONNX_FLOAT,
        &shape);

    if (!values)
        return;
    values->text[0] = fl_onnx_text(x, "count of %s", owner_of(v)->name);
    fl_onnx_input(x, values);
    offsets_of(x, owner_of(v));
}

/* --- offsets -------------------------------------------------------------- */

/* What is made of the offsets once, whatever asks for it. */
typedef struct ragged {
    const char *start, *end; /* [batch, 1]: where a sample's values are */
    const char *length;      /* [batch, 1], int64 */
    const char *count;       /* [1]: of all values */
} ragged;

static const char *known_part(fl_onnx *x, const char *part, const fleet_var *v,
                              const char **what)
{
    *what = fl_onnx_text(x, "%s of %s", part, v->name);
    return fl_onnx_known(x, *what);
}

static const char *column_of(fl_onnx *x, const fleet_var *v, const char *part,
                             int64_t first, int64_t last)
{
    const char *what, *name = known_part(x, part, v, &what);

    if (name)
        return name;
    name = fl_onnx_slice(x, offsets_of(x, v), 0, first, last);
    return fl_onnx_remember(x, what, fl_onnx_unsqueeze(x, name, 1));
}

static ragged ragged_of(fl_onnx *x, const fleet_var *v)
{
    const fleet_var *owner = owner_of(v);
    ragged r = {column_of(x, owner, "start", 0, -1),
                column_of(x, owner, "end", 1, INT64_MAX), NULL, NULL};
    const char *what;

    r.length = known_part(x, "length", owner, &what);
    if (!r.length)
        r.length = fl_onnx_remember(x, what, FL_ONNX(x, "Sub", r.end, r.start));
    r.count = known_part(x, "count", owner, &what);
    if (!r.count)
        r.count =
            fl_onnx_remember(x, what, FL_ONNX(x, "Shape", fl_onnx_of(x, v)));
    return r;
}

/* Where there is no value the index is that of what is behind all values. */
static const char *index_where(fl_onnx *x, const ragged *r, const char *index)
{
    return FL_ONNX(x, "Where", FL_ONNX(x, "Less", index, r->end), index,
                   r->count);
}

/* [batch, T] of the values; T is that of the sample with most, at least 1. */
static const char *index_of_all(fl_onnx *x, const fleet_var *v)
{
    const char *what, *known = known_part(x, "index", owner_of(v), &what);
    ragged r;
    const char *most;

    if (known)
        return known;
    r = ragged_of(x, v);
    most = FL_ONNX(x, "ReduceMax", r.length);
    fl_onnx_with_int(x, "keepdims", 0);
    most = FL_ONNX(x, "Max", most, fl_onnx_integer(x, 1));
    most =
        FL_ONNX(x, "Range", fl_onnx_integer(x, 0), most, fl_onnx_integer(x, 1));
    return fl_onnx_remember(
        x, what, index_where(x, &r, FL_ONNX(x, "Add", r.start, most)));
}

/* [batch, T] of the first or last T values. */
static const char *index_of_some(fl_onnx *x, const fleet_var *v, int64_t most,
                                 bool keep_first)
{
    const char *part =
        fl_onnx_text(x, "%s %" PRId64, keep_first ? "first" : "last", most);
    const char *what, *known = known_part(x, part, owner_of(v), &what);
    int64_t *places = fl_onnx_room(x, (size_t)most, sizeof *places);
    const char *begin;
    ragged r;

    if (known || !places)
        return known;
    for (int64_t i = 0; i < most; i++)
        places[i] = i;
    r = ragged_of(x, v);
    begin = r.start;
    if (!keep_first)
        begin = FL_ONNX(x, "Max", begin,
                        FL_ONNX(x, "Sub", r.end, fl_onnx_integer(x, most)));
    begin = FL_ONNX(x, "Add", begin, fl_onnx_ints(x, places, most));
    return fl_onnx_remember(x, what, index_where(x, &r, begin));
}

/* --- pooling -------------------------------------------------------------- */

const char *fl_onnx_rows_and(fl_onnx *x, const char *rows, int64_t dim,
                             double value)
{
    const char *row = fl_onnx_unsqueeze(x, fl_onnx_filled(x, value, dim), 0);

    return fl_onnx_concat(x, 0, (const char *const[]){rows, row}, 2);
}

static const char *reduced_rows(fl_onnx *x, const char *type, const char *rows,
                                const fleet_var *v)
{
    const char *out =
        FL_ONNX(x, type, fl_onnx_gather(x, rows, index_of_all(x, v), 0),
                fl_onnx_int1(x, 1));

    fl_onnx_with_int(x, "keepdims", 0);
    return out;
}

/* The first or last row. */
static const char *row_at(fl_onnx *x, const fleet_var *v, const char *rows,
                          bool last)
{
    ragged r = ragged_of(x, v);
    const char *at = r.start;

    if (last)
        at = FL_ONNX(x, "Sub", r.end, fl_onnx_integer(x, 1));
    at = FL_ONNX(x, "Where", FL_ONNX(x, "Less", r.start, r.end), at, r.count);
    at = FL_ONNX(x, "Squeeze", at, fl_onnx_int1(x, 1));
    return fl_onnx_gather(x, rows, at, 0);
}

/* How many values a sample has, at least 1: [batch, 1] float. */
static const char *divisor_of(fl_onnx *x, const fleet_var *v)
{
    ragged r = ragged_of(x, v);

    return fl_onnx_cast(x, FL_ONNX(x, "Max", r.length, fl_onnx_integer(x, 1)),
                        FL_ONNX_FLOAT);
}

static const char *largest_of(fl_onnx *x, const fleet_var *v, const char *rows,
                              int64_t dim)
{
    ragged r = ragged_of(x, v);
    const char *out = reduced_rows(
        x, "ReduceMax", fl_onnx_rows_and(x, rows, dim, (double)-FLT_MAX), v);

    return FL_ONNX(x, "Where", FL_ONNX(x, "Less", r.start, r.end), out,
                   fl_onnx_number(x, 0));
}

const char *fl_onnx_pool(fl_onnx *x, const fleet_var *v, const char *rows,
                         int64_t dim, fleet_combiner combiner)
{
    const char *sum;

    if (combiner == FLEET_MAX)
        return largest_of(x, v, rows, dim);
    rows = fl_onnx_rows_and(x, rows, dim, 0);
    if (combiner == FLEET_FIRST || combiner == FLEET_LAST)
        return row_at(x, v, rows, combiner == FLEET_LAST);
    sum = reduced_rows(x, "ReduceSum", rows, v);
    if (combiner == FLEET_MEAN)
        return FL_ONNX(x, "Div", sum, divisor_of(x, v));
    if (combiner == FLEET_SQRT)
        return FL_ONNX(x, "Div", sum, FL_ONNX(x, "Sqrt", divisor_of(x, v)));
    return sum;
}

const char *fl_onnx_emit_sequence_pool(fl_onnx *x, const fl_node *n,
                                       const char *type)
{
    const fleet_var *v = n->in[0];

    (void)type;
    return fl_onnx_pool(x, v, fl_onnx_unsqueeze(x, fl_onnx_of(x, v), 1), 1,
                        (fleet_combiner)fl_node_int(n, "combiner"));
}

/* --- sequences ------------------------------------------------------------ */

const char *fl_onnx_pad_ragged(fl_onnx *x, const fl_node *n, const fleet_var *v,
                               const char *values)
{
    const char *index = index_of_some(x, v, fl_node_int(n, "max_len"),
                                      fl_node_int(n, "keep_first") != 0);

    return fl_onnx_gather(x, values, index, 0);
}

const char *fl_onnx_emit_sequence_pad(fl_onnx *x, const fl_node *n,
                                      const char *type)
{
    const fleet_var *v = n->in[0];
    double value = fl_node_float(n, "value");
    const char *both[] = {fl_onnx_of(x, v),
                          v->dtype == FLEET_INT64
                              ? fl_onnx_int1(x, (int64_t)value)
                              : fl_onnx_filled(x, value, 1)};

    (void)type;
    return fl_onnx_pad_ragged(x, n, v, fl_onnx_concat(x, 0, both, 2));
}

const char *fl_onnx_emit_sequence_mask(fl_onnx *x, const fl_node *n,
                                       const char *type)
{
    int64_t most = fl_node_int(n, "max_len");
    int64_t *places = fl_onnx_room(x, (size_t)most, sizeof *places);
    ragged r = ragged_of(x, n->in[0]);

    for (int64_t i = 0; places && i < most; i++)
        places[i] = i;
    return places ? fl_onnx_cast(x,
                                 FL_ONNX(x, type, fl_onnx_ints(x, places, most),
                                         r.length),
                                 FL_ONNX_FLOAT)
                  : NULL;
}
