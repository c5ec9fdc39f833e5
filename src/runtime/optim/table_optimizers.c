/* table_optimizers.c - optimizers of single tables: which rows an optimizer
 * leaves to another one. */
#include "runtime/optim/table_optimizers.h"

#include <string.h>

#include "base/memory.h"

static const char call[] = "fleet_optimizer_set_table";

int fl_optimizer_own_at(const fleet_optimizer *o, const char *table)
{
    for (size_t i = 0; i < o->n_table; i++)
        if (strcmp(o->tables[i].table, table) == 0)
            return (int)i;
    return -1;
}

fleet_optimizer *fl_optimizer_own(const fleet_optimizer *o, const char *table)
{
    int at = fl_optimizer_own_at(o, table);

    return at < 0 ? NULL : o->tables[at].optimizer;
}

fl_update fl_table_update(const fleet_optimizer *own,
                          const fleet_param_attr *attr, const fl_update *all,
                          int64_t done)
{
    fl_update u;

    if (!own)
        return fl_update_with(all, attr);
    fl_optimizer_update(own, done, 1, &u);
    u.scale = all->scale;
    u.clip = all->clip;
    u.version = all->version;
    return fl_update_with(&u, attr);
}

void fl_optimizer_fix(fleet_optimizer *o)
{
    o->is_fixed = true;
    for (size_t i = 0; i < o->n_table; i++)
        o->tables[i].optimizer->is_fixed = true;
}

static fleet_status check_pair(const fleet_optimizer *o, const char *table,
                               const fleet_optimizer *of_table)
{
    if (of_table == o || of_table->context != o->context)
        return fl_fail(FLEET_EINVAL, "%s: table \"%s\": the optimizer %s", call,
                       table,
                       of_table == o ? "is that of all other parameters"
                                     : "belongs to another handle");
    if (of_table->n_table > 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: table \"%s\": its optimizer has tables itself",
                       call, table);
    if (of_table->clip_norm > 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: table \"%s\": its optimizer clips: the norm is "
                       "that of all gradients, set it on the optimizer that is "
                       "minimized",
                       call, table);
    if (of_table->norm_clip > 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: table \"%s\": its optimizer clips by norm: set it "
                       "on the optimizer that is minimized",
                       call, table);
    if (of_table->plateau.on)
        return fl_fail(FLEET_EINVAL,
                       "%s: table \"%s\": its optimizer has a plateau: its "
                       "learning rate stays as it was when training began",
                       call, table);
    return of_table->is_fixed && of_table->n_user == 0
               ? fl_fail(FLEET_ESTATE,
                         "%s: table \"%s\": a program is minimized with its "
                         "optimizer",
                         call, table)
               : FLEET_OK;
}

static fleet_status check_call(const fleet_optimizer *o, const char *table,
                               const fleet_optimizer *of_table)
{
    if (!o || !table || !*table)
        return fl_fail(FLEET_EINVAL, "%s: no %s", call,
                       o ? "table" : "optimizer");
    if (o->n_user > 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: table \"%s\": this optimizer is a table's itself",
                       call, table);
    if (o->is_fixed || o->serves)
        return fl_fail(FLEET_ESTATE,
                       "%s: table \"%s\": call it before fleet_minimize()",
                       call, table);
    return of_table ? check_pair(o, table, of_table) : FLEET_OK;
}

static void leave_out(fleet_optimizer *o, const char *table)
{
    int at = fl_optimizer_own_at(o, table);

    if (at < 0)
        return;
    o->tables[at].optimizer->n_user--;
    fl_free(o->tables[at].table);
    o->tables[at] = o->tables[--o->n_table];
}

fleet_status fleet_optimizer_set_table(fleet_optimizer *o, const char *table,
                                       fleet_optimizer *of_table)
{
    char *name;

    FL_TRY(check_call(o, table, of_table));
    if (!of_table) {
        leave_out(o, table);
        return FLEET_OK;
    }
    FL_TRY(fl_grow(&o->tables, &o->table_capacity, o->n_table + 1,
                   sizeof *o->tables));
    name = fl_strdup(table);
    if (!name)
        return FLEET_ENOMEM;
    leave_out(o, table);
    o->tables[o->n_table++] = (fl_table_optimizer){name, of_table};
    of_table->n_user++;
    return FLEET_OK;
}
