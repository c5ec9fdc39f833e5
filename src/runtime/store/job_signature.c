/* job_signature.c - a line for the seed, each parameter, each table and the
 * optimizer, in one order in all processes. */
#include "runtime/store/job_signature.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

static void add_attr(fl_text *t, const fleet_param_attr *a)
{
    const fleet_initializer *first = &a->initializer;

    fl_text_add(t, ", rate %.9g, decay %.9g%s, first %d %.9g %.9g",
                (double)a->learning_rate, (double)a->l2_decay,
                a->no_decay ? " none" : "", (int)first->kind, (double)first->a,
                (double)first->b);
}

static void add_optimizer(fl_text *t, const fleet_optimizer *o)
{
    fl_text_add(t, "optimizer %s %.9g,", fl_rule_of(o->kind)->name,
                (double)o->learning_rate);
    for (int i = 0; i < FL_MAX_NUMBER; i++)
        fl_text_add(t, i == FL_FIRST_STATE ? ", first %.9g" : " %.9g",
                    (double)o->number[i]);
    fl_text_add(t, ", decay %.9g, clip %.9g, schedule %d %.9g %" PRId64 " %d",
                (double)o->l2_decay, (double)o->clip_norm, (int)o->decay,
                (double)o->rate, o->decay_steps, o->staircase);
    for (int i = 0; i < o->n_boundary; i++)
        fl_text_add(t, " %" PRId64 ":%.9g", o->boundary[i],
                    (double)o->value[i]);
    fl_text_add(t, "\n");
}

static fleet_status add_all(fl_text *t, const fl_store *s)
{
    fl_map_entry *param = fl_map_sorted(&s->params),
                 *table = fl_map_sorted(&s->tables);

    for (size_t i = 0; param && table && i < s->params.n; i++) {
        const fl_param *p = param[i].value;
        bool apart = s->dense_local && fl_param_is_remote(s, p);

        fl_text_add(t, "parameter \"%s\" %s", p->name,
                    fl_shape_print(&p->shape).chars);
        add_attr(t, &p->attr);
        fl_text_add(t, "%s\n", apart ? ", on servers" : "");
    }
    for (size_t i = 0; param && table && i < s->tables.n; i++) {
        const fl_rows *r = table[i].value;

        fl_text_add(t, "table \"%s\" of %" PRId64 " by %" PRId64, r->name,
                    r->modulo, r->dim);
        add_attr(t, &r->attr);
        fl_text_add(t, "%s\n",
                    fl_table_is_remote(&r->attr) ? "" : ", by ranks");
    }
    fl_free(param);
    fl_free(table);
    return param && table ? FLEET_OK : FLEET_ENOMEM;
}

char *fl_job_signature_text(const fl_store *s)
{
    fl_text t = {0};
    fleet_status status;

    fl_text_add(&t, "seed %" PRIu64 "\n", s->context->seed);
    status = add_all(&t, s);
    if (s->optimizer)
        add_optimizer(&t, s->optimizer);
    if (status == FLEET_OK && t.status == FLEET_OK)
        return t.chars;
    fl_text_done(&t);
    return NULL;
}

char *fl_job_signature_difference(const char *us, const char *ours,
                                  const char *them, const char *theirs)
{
    fl_text t = {0};

    while (*ours || *theirs) {
        size_t a = strcspn(ours, "\n"), b = strcspn(theirs, "\n");

        if (a != b || strncmp(ours, theirs, a) != 0) {
            fl_text_add(&t, "%s has `%.*s`, %s `%.*s`", us,
                        a < 300 ? (int)a : 300, ours, them,
                        b < 300 ? (int)b : 300, theirs);
            return t.chars;
        }
        ours += a + (ours[a] == '\n');
        theirs += b + (theirs[b] == '\n');
    }
    return NULL;
}
