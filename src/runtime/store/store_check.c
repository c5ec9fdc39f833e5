/* store_check.c - whether a program's variables can be the store's of the same
 * names. */
#include "runtime/store/store_check.h"

#include "runtime/graph/table_options.h"

static fleet_status check_same(const fleet_var *v, const fl_shape *has,
                               fleet_ps keeper)
{
    if (v->attr.ps != FLEET_PS_BY_MODE && v->attr.ps != keeper)
        return fl_fail(FLEET_EEXIST,
                       "\"%s\" is there already with another ps, in another "
                       "program of this handle or because it was loaded or "
                       "saved before",
                       v->name);
    if (fl_shape_equal(&v->shape, has))
        return FLEET_OK;
    return fl_fail(FLEET_EEXIST,
                   "\"%s\" has shape %s here, and %s in another program of "
                   "this handle",
                   v->name, fl_shape_print(&v->shape).chars,
                   fl_shape_print(has).chars);
}

/* Of a program that states none the store's stays: evaluation, say. */
static fleet_status check_life(const fleet_var *v, const fl_rows *rows)
{
    static const fleet_table_options none;
    const char *other = fl_table_options_differ(
        rows->life ? &rows->life->o : &none, &v->ids.life);

    return other ? fl_fail(FLEET_EEXIST,
                           "\"%s\" is there already with another %s, in "
                           "another program of this handle or because it was "
                           "loaded or saved before",
                           v->name, other)
                 : FLEET_OK;
}

static fleet_status check_cap(const fleet_var *v, const fl_rows *has)
{
    if (v->cap.bytes == 0 || v->cap.bytes == has->cap_bytes)
        return FLEET_OK;
    return fl_fail(FLEET_EEXIST,
                   "table \"%s\" is there already with memory_cap_bytes %lld, "
                   "and %lld in this program",
                   v->name, (long long)has->cap_bytes, (long long)v->cap.bytes);
}

fleet_status fl_store_check_var(const fl_store *s, const fleet_var *v)
{
    const fl_param *param = fl_store_param(s, v->name);
    const fl_rows *rows = fl_store_rows(s, v->name);
    const fl_state *state = fl_store_state(s, v->name);

    if (v->kind == FL_VAR_PARAM && param)
        return check_same(v, &param->shape, param->attr.ps);
    if (v->kind == FL_VAR_STATE && state)
        return check_same(v, &state->shape, v->attr.ps);
    if (v->kind == FL_VAR_TABLE && rows) {
        fl_shape has = fl_shape_2(rows->modulo, rows->dim);

        FL_TRY(check_life(v, rows));
        if (v->ids.storage != rows->storage)
            return fl_fail(FLEET_EEXIST,
                           "\"%s\" has storage %s here, and %s in another "
                           "program of this handle",
                           v->name, fl_storage_names[v->ids.storage],
                           fl_storage_names[rows->storage]);
        FL_TRY(check_same(v, &has, rows->attr.ps));
        return check_cap(v, rows);
    }
    return FLEET_OK;
}

fleet_status fl_store_check_weights(const fl_store *s)
{
    for (const fl_flat *g = s->flats; g; g = g->next)
        if (!g->weight)
            return fl_fail(FLEET_ESTATE,
                           "strategy.sharding_configs.stage %d: %d ranks share "
                           "out the weights, and this process has its own part "
                           "alone: call this between fleet_init_worker() and "
                           "fleet_stop_worker()",
                           s->share.stage, s->share.ranks);
    return FLEET_OK;
}
