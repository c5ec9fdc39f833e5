/* psgpu.c - the calls of GPU-PS: what they are told is kept, and compared with
 * the program when a pass begins. */
#include <inttypes.h>
#include <string.h>

#include <fleet/psgpu.h>

#include "base/memory.h"
#include "fleet/pass/pass_rows.h"
#include "fleet/memory/in_memory.h"
#include "fleet/train/slot_bounds.h"
#include "fleet/train/slot_fits.h"
#include "runtime/exec/executor.h"
#include "runtime/lookup/lookup_gpu.h"

static fleet_status check_psgpu(const fleet_psgpu *g, const char *call)
{
    if (!g)
        return fl_fail(FLEET_EINVAL, "%s: no psgpu", call);
    return fl_handle_check(g->f, call);
}

/* Of a call that is not for the middle of a pass. */
static fleet_status check_idle(const fleet_psgpu *g, const char *call)
{
    FL_TRY(check_psgpu(g, call));
    return g->begun ? fl_fail(FLEET_ESTATE,
                              "%s: a pass has begun: call "
                              "fleet_psgpu_end_pass() before",
                              call)
                    : FLEET_OK;
}

fleet_psgpu *fleet_psgpu_create(fleet *f, const fleet_psgpu_options *o)
{
    static const char call[] = "fleet_psgpu_create";
    fleet_psgpu *g;

    if (fl_handle_check(f, call) != FLEET_OK)
        return NULL;
    if (o && o->memory_bytes < 0) {
        fl_fail(FLEET_EINVAL,
                "%s: memory_bytes: expected 0 or more, got %" PRId64, call,
                o->memory_bytes);
        return NULL;
    }
    if (f->psgpu) {
        fl_fail(FLEET_EEXIST, "%s: the handle has one", call);
        return NULL;
    }
    g = fl_alloc(sizeof *g);
    if (!g)
        return NULL;
    if (o && o->folder && !(g->note.folder = fl_strdup(o->folder))) {
        fl_free(g);
        return NULL;
    }
    g->f = f;
    g->device = -1;
    g->memory_bytes = o ? o->memory_bytes : 0;
    return f->psgpu = g;
}

/* --- what it is told ------------------------------------------------------ */

static void forget_slots(fleet_psgpu *g)
{
    fl_next_pass_forget(g); /* names are compared as it begins */
    for (int i = 0; i < g->n_slot; i++)
        fl_free(g->slot[i]);
    fl_free(g->slot);
    fl_free(g->slot_dim);
    g->slot = NULL;
    g->slot_dim = NULL;
    g->n_slot = g->n_slot_dim = 0;
}

fleet_status fleet_psgpu_set_slot_vector(fleet_psgpu *g,
                                         const char *const *slots, int n)
{
    static const char call[] = "fleet_psgpu_set_slot_vector";

    FL_TRY(check_idle(g, call));
    if (n < 0 || (n > 0 && !slots))
        return fl_fail(FLEET_EINVAL, "%s: %d slots, of which there is no list",
                       call, n);
    for (int i = 0; i < n; i++)
        if (!slots[i])
            return fl_fail(FLEET_EINVAL, "%s: slot %d has no name", call, i);
    forget_slots(g);
    g->slot = fl_alloc_array((size_t)n, sizeof *g->slot);
    if (!g->slot)
        return FLEET_ENOMEM;
    for (; g->n_slot < n; g->n_slot++) {
        g->slot[g->n_slot] = fl_strdup(slots[g->n_slot]);
        if (!g->slot[g->n_slot]) {
            forget_slots(g);
            return FLEET_ENOMEM;
        }
    }
    return FLEET_OK;
}

fleet_status fleet_psgpu_set_slot_dim_vector(fleet_psgpu *g,
                                             const int64_t *dims, int n)
{
    static const char call[] = "fleet_psgpu_set_slot_dim_vector";
    int64_t *copy;

    FL_TRY(check_idle(g, call));
    if (!dims || n != g->n_slot)
        return fl_fail(FLEET_EINVAL,
                       "%s: %d dims: expected one of each of the %d slots of "
                       "fleet_psgpu_set_slot_vector()",
                       call, dims ? n : 0, g->n_slot);
    for (int i = 0; i < n; i++)
        if (dims[i] < 1)
            return fl_fail(FLEET_EINVAL,
                           "%s: slot \"%s\": expected a dim of 1 or more, got "
                           "%" PRId64,
                           call, g->slot[i], dims[i]);
    FL_TRY(FL_NEW(&copy, (size_t)n * sizeof *copy));
    if (n > 0)
        memcpy(copy, dims, (size_t)n * sizeof *copy);
    fl_free(g->slot_dim);
    g->slot_dim = copy;
    g->n_slot_dim = n;
    fl_next_pass_forget(g);
    return FLEET_OK;
}

fleet_status fleet_psgpu_init_gpu_ps(fleet_psgpu *g, const int *devices, int n)
{
    static const char call[] = "fleet_psgpu_init_gpu_ps";

    FL_TRY(check_idle(g, call));
    if (!devices || n < 1 || devices[0] < 0)
        return fl_fail(FLEET_EINVAL,
                       "%s: expected the number of a GPU, from 0 on", call);
    if (n > 1)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "%s: %d GPUs: this version has the rows of a pass on "
                       "one",
                       call, n);
    g->device = devices[0];
    return FLEET_OK;
}

fleet_status fleet_psgpu_set_dataset(fleet_psgpu *g, fleet_dataset *d)
{
    static const char call[] = "fleet_psgpu_set_dataset";

    FL_TRY(check_idle(g, call));
    if (!d || d->fleet != g->f)
        return fl_fail(FLEET_EINVAL, "%s: no dataset of this handle", call);
    if (!d->memory)
        return fl_fail(FLEET_ESTATE,
                       "%s: a queue dataset has no samples in memory: expected "
                       "one of fleet_in_memory_dataset()",
                       call);
    if (g->d)
        g->d->psgpu = NULL;
    g->d = d;
    d->psgpu = g;
    d->forget_psgpu = fl_psgpu_forget_dataset;
    return FLEET_OK;
}

fleet_status fleet_psgpu_load_into_memory(fleet_psgpu *g)
{
    static const char call[] = "fleet_psgpu_load_into_memory";

    FL_TRY(check_idle(g, call));
    if (!g->d)
        return fl_fail(FLEET_ESTATE,
                       "%s: no dataset: call fleet_psgpu_set_dataset() before",
                       call);
    return fleet_dataset_load_into_memory(g->d);
}

/* --- what the program looks up -------------------------------------------- */

static bool is_lookup(const fl_node *n)
{
    return (n->op->traits & FL_OP_LOOKUP) != 0;
}

static int slot_number(const fleet_dataset *d, const char *name)
{
    int i = 0;

    while (i < d->n_slot && strcmp(d->slots[i].name, name) != 0)
        i++;
    return i < d->n_slot ? i : -1;
}

static bool is_named(const fleet_psgpu *g, const char *slot, int *which)
{
    for (*which = 0; *which < g->n_slot; ++*which)
        if (strcmp(g->slot[*which], slot) == 0)
            return true;
    return g->n_slot == 0;
}

static fleet_status check_slot(const fleet_psgpu *g, const fl_node *n,
                               const char *call)
{
    const char *ids = fl_lookup_slot_of(n).ids->name;
    int64_t dim = n->in[0]->shape.dim[1];
    int which;

    if (!is_named(g, ids, &which))
        return fl_fail(FLEET_EINVAL,
                       "%s: the program looks up slot \"%s\" in table \"%s\" "
                       "on the GPU, and fleet_psgpu_set_slot_vector() has not "
                       "named it",
                       call, ids, n->in[0]->name);
    if (which < g->n_slot_dim && g->slot_dim[which] != dim)
        return fl_fail(FLEET_EINVAL,
                       "%s: slot \"%s\": the program's table \"%s\" has dim "
                       "%" PRId64 ", fleet_psgpu_set_slot_dim_vector() says "
                       "%" PRId64,
                       call, ids, n->in[0]->name, dim, g->slot_dim[which]);
    return FLEET_OK;
}

/* Every name is a slot that is looked up on the GPU. */
static fleet_status check_names(const fleet_psgpu *g, const char *call)
{
    for (int i = 0; i < g->n_slot; i++) {
        int slot = slot_number(g->d, g->slot[i]);
        bool found = false;

        for (int k = 0; k < g->n_table; k++)
            for (int j = 0; j < g->table[k].n_slot; j++)
                found = found || g->table[k].slot[j] == slot;
        if (!found)
            return fl_fail(FLEET_EINVAL,
                           "%s: slot \"%s\" of fleet_psgpu_set_slot_vector() "
                           "is none that the program looks up on the GPU",
                           call, g->slot[i]);
    }
    return FLEET_OK;
}

/* The table's slots of the dataset. */
static fleet_status add_table(fleet_psgpu *g, const fleet_var *table,
                              const char *call)
{
    const fleet_program *p = g->program;
    fl_pass_table *t = &g->table[g->n_table++];

    t->var = table;
    t->slot = fl_alloc_array(p->n_node, sizeof *t->slot);
    if (!t->slot)
        return FLEET_ENOMEM;
    for (size_t i = 0; i < p->n_node; i++) {
        const fl_node *n = p->node[i];
        int slot;

        if (!is_lookup(n) || n->in[0] != table)
            continue;
        slot = slot_number(g->d, fl_lookup_slot_of(n).ids->name);
        if (slot < 0)
            return fl_fail(FLEET_ENOENT,
                           "%s: no slot of the dataset feeds variable \"%s\"",
                           call, fl_lookup_slot_of(n).ids->name);
        FL_TRY(check_slot(g, n, call));
        t->slot[t->n_slot++] = slot;
    }
    return FLEET_OK;
}

static bool is_looked_up(const fleet_program *p, const fleet_var *table)
{
    for (size_t i = 0; i < p->n_node; i++)
        if (is_lookup(p->node[i]) && p->node[i]->in[0] == table)
            return true;
    return false;
}

static fleet_status find_tables(fleet_psgpu *g, const char *call)
{
    const fleet_program *p = g->program;

    FL_TRY(FL_NEW(&g->table, (p->n_var + 1) * sizeof *g->table));
    for (size_t i = 0; i < p->n_var; i++) {
        const fleet_var *v = p->var[i];

        if (v->kind != FL_VAR_TABLE || !is_looked_up(p, v))
            continue;
        if (fl_table_fits_gpu(p, &p->place, v))
            FL_TRY(add_table(g, v, call));
        else
            FL_INFO(&g->f->context.log,
                    "table \"%s\" stays in the host's memory: its lookups "
                    "cannot be on the GPU",
                    v->name);
    }
    if (g->n_table == 0)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "%s: the program has no table whose rows can be on the "
                       "GPU",
                       call);
    return check_names(g, call);
}

static fleet_status find_bounds(fleet_psgpu *g)
{
    size_t n = (size_t)g->d->n_slot;
    fleet_status status = FLEET_OK;
    int *var;

    FL_TRY(FL_NEW(&g->bounds, n * sizeof *g->bounds));
    FL_TRY(FL_NEW(&var, n * sizeof *var));
    for (size_t i = 0; i < n && status == FLEET_OK; i++) {
        const fleet_slot *s = &g->d->slots[i];
        const fleet_var *v = fleet_program_var(g->program, s->name);

        var[i] = v && v->kind == FL_VAR_DATA ? v->id : -1;
        if (var[i] >= 0)
            status = fl_slot_fits(s, v);
    }
    if (status == FLEET_OK)
        status = fl_slot_bounds_find(g->program, var, g->d->n_slot, g->bounds);
    fl_free(var);
    return status;
}

/* --- passes --------------------------------------------------------------- */

static fleet_status check_told(const fleet_psgpu *g, const char *call)
{
    const fleet *f = g->f;
    const char *missing = !f->trained     ? "fleet_minimize()"
                          : !g->d         ? "fleet_psgpu_set_dataset()"
                          : g->device < 0 ? "fleet_psgpu_init_gpu_ps()"
                                          : NULL;

    if (missing)
        return fl_fail(FLEET_ESTATE, "%s: call %s before", call, missing);
    if (!f->store->gpu_passes)
        return fl_fail(FLEET_ESTATE,
                       "%s: strategy.a_sync_configs.use_ps_gpu is 0", call);
    FL_TRY(fl_in_memory_check(g->d, call));
    if (!f->trained->place.gpu)
        return fl_fail(FLEET_EINVAL,
                       "%s: the program is on the CPU: call "
                       "fleet_program_place() with FLEET_GPU(%d)",
                       call, g->device);
    if (f->trained->place.gpu->d->ordinal != g->device)
        return fl_fail(FLEET_EINVAL,
                       "%s: the program is on gpu:%d, and "
                       "fleet_psgpu_init_gpu_ps() says gpu:%d",
                       call, f->trained->place.gpu->d->ordinal, g->device);
    return FLEET_OK;
}

fleet_status fleet_psgpu_begin_pass(fleet_psgpu *g)
{
    static const char call[] = "fleet_psgpu_begin_pass";
    fleet_status status;

    FL_TRY(check_idle(g, call));
    FL_TRY(check_told(g, call));
    if (fl_next_pass_is_here(g))
        return fl_psgpu_begin_here(g);
    if (g->next.is_here) /* of another pass */
        FL_TRY(fl_psgpu_drop(g, false));
    g->program = g->f->trained;
    g->gpu = fl_gpu_share(g->program->place.gpu);
    status = find_tables(g, call);
    if (status == FLEET_OK)
        status = find_bounds(g);
    if (status != FLEET_OK) {
        (void)fl_psgpu_drop(g, true);
        return status;
    }
    return fl_psgpu_begin(g);
}

static fleet_status check_begun(const fleet_psgpu *g, const char *call)
{
    FL_TRY(check_psgpu(g, call));
    return g->begun ? FLEET_OK
                    : fl_fail(FLEET_ESTATE,
                              "%s: no pass has begun: call "
                              "fleet_psgpu_begin_pass() before",
                              call);
}

fleet_status fleet_psgpu_expect_pass(fleet_psgpu *g)
{
    FL_TRY(check_begun(g, "fleet_psgpu_expect_pass"));
    g->next.is_expected = true;
    return FLEET_OK;
}

static fleet_status check_trained(const fleet_psgpu *g, const char *call)
{
    return g->d && g->d->trainer
               ? fl_fail(FLEET_ESTATE, "%s: the pass is being trained", call)
               : FLEET_OK;
}

fleet_status fleet_psgpu_end_pass(fleet_psgpu *g)
{
    static const char call[] = "fleet_psgpu_end_pass";

    FL_TRY(check_begun(g, call));
    FL_TRY(check_trained(g, call));
    FL_TRY(fl_store_synchronize(g->f->store));
    return fl_psgpu_end(g);
}

fleet_status fleet_psgpu_dump_to_mem(fleet_psgpu *g)
{
    fl_store *s;
    fleet_status status;

    FL_TRY(check_psgpu(g, "fleet_psgpu_dump_to_mem"));
    s = g->f->store;
    FL_TRY(fl_store_synchronize(s));
    pthread_rwlock_wrlock(&s->lock);
    status = fl_store_to_host(s);
    pthread_rwlock_unlock(&s->lock);
    return status;
}

fleet_status fleet_psgpu_finalize(fleet_psgpu *g)
{
    static const char call[] = "fleet_psgpu_finalize";
    fleet_status status = FLEET_OK;

    FL_TRY(check_psgpu(g, call));
    FL_TRY(check_trained(g, call));
    if (g->begun || g->next.is_here) {
        status = fl_store_synchronize(g->f->store);
        if (status == FLEET_OK)
            status = fl_psgpu_drop(g, false);
        if (status != FLEET_OK)
            (void)fl_psgpu_drop(g, true);
    }
    fl_psgpu_destroy(g);
    return status;
}
