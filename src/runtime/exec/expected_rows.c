/* expected_rows.c - the ids of a batch's lookups, as keys of tables. */
#include "runtime/exec/expected_rows.h"

#include "runtime/lookup/lookup.h"

enum { CHUNK = 512 };

bool fl_program_expects(const fleet_program *p)
{
    for (size_t i = 0; i < p->n_var; i++)
        if (p->var[i]->kind == FL_VAR_TABLE && p->var[i]->cap.bytes > 0)
            return true;
    return false;
}

static void expect_ids(fl_rows *r, const uint64_t *id, int64_t n)
{
    uint64_t key[CHUNK];

    for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t m = n - i < CHUNK ? n - i : CHUNK;

        for (int64_t j = 0; j < m; j++)
            key[j] = r->modulo ? id[i + j] % (uint64_t)r->modulo : id[i + j];
        r->methods->expect(r, key, m);
    }
}

/* Of padded ids the ones that samples keep. */
static void expect_kept(fl_rows *r, const fl_lookup_slot *s, const fl_input *in,
                        int64_t batch)
{
    const uint64_t *id = in->data;

    for (int64_t i = 0; i < batch; i++) {
        int64_t first = in->offsets[i], n = in->offsets[i + 1] - first;
        int64_t kept = n < s->most ? n : s->most;

        expect_ids(r, id + first + (s->keep_last ? n - kept : 0), kept);
    }
}

static void expect_node(const fl_store *s, const fl_node *node,
                        const fl_input *input, int64_t batch)
{
    const fl_lookup_slot slot = fl_lookup_slot_of(node);
    const fleet_var *ids = slot.ids;
    const fl_input *in = &input[ids->id];
    fl_rows *r = fl_store_rows(s, node->in[0]->name);
    int64_t n;

    if (!r || !r->methods->expect || !in->data)
        return;
    if (slot.most > 0) {
        expect_kept(r, &slot, in, batch);
        return;
    }
    n = ids->ragged ? in->offsets[batch] : batch * fl_shape_cols(&ids->shape);
    expect_ids(r, in->data, n);
}

void fl_expect_rows(const fleet_program *p, const fl_store *s,
                    const fl_input *input, int64_t batch)
{
    for (size_t i = 0; i < p->n_node; i++) {
        const fl_node *n = p->node[i];

        if ((n->op->traits & FL_OP_LOOKUP) && n->in[0]->cap.bytes > 0)
            expect_node(s, n, input, batch);
    }
}
