/* inputs.c - a list of files: which is open, and which are read ahead. */
#include "data/io/inputs.h"

#include "base/memory.h"
#include "data/io/unpack.h"

fleet_status fl_inputs_init(fl_inputs *in, const char *const *path, int n,
                            const fl_source_options *o, int n_prefetch)
{
    *in = (fl_inputs){
        .path = path, .n = n, .o = *o, .n_prefetch = n_prefetch, .current = -1};
    if (n_prefetch > 1)
        FL_TRY(FL_NEW(&in->prefetch, (size_t)n * sizeof *in->prefetch));
    return FLEET_OK;
}

/* Of a command, or of a packed file: a plain one comes from the page cache
 * faster than through a queue. */
static fleet_status start_prefetch(fl_inputs *in)
{
    int last = in->current + in->n_prefetch;

    for (; in->started < in->n && in->started < last; in->started++)
        if (in->o.command || fl_is_packed(in->path[in->started]))
            FL_TRY(fl_read_ahead_start(&in->prefetch[in->started],
                                       in->path[in->started], &in->o));
    return FLEET_OK;
}

fleet_status fl_inputs_next(fl_inputs *in)
{
    fl_source_close(in->source);
    in->source = NULL;
    if (in->prefetch && in->current >= 0) {
        fl_read_ahead_close(in->prefetch[in->current]);
        in->prefetch[in->current] = NULL;
    }
    if (in->current + 1 >= in->n)
        return FLEET_EEND;
    in->current++;
    if (in->prefetch) {
        FL_TRY(start_prefetch(in));
        if (in->prefetch[in->current])
            return fl_read_ahead_wait(in->prefetch[in->current]);
    }
    return fl_source_open(&in->source, in->path[in->current], &in->o);
}

fleet_status fl_inputs_read(fl_inputs *in, void *to, size_t size, size_t *got)
{
    double share;

    if (in->source) {
        FL_TRY(fl_source_read(in->source, to, size, got));
        share = fl_source_share(in->source);
    } else {
        FL_TRY(fl_read_ahead_read(in->prefetch[in->current], to, size, got));
        share = fl_read_ahead_share(in->prefetch[in->current]);
    }
    in->share = (in->current + share) / in->n;
    return FLEET_OK;
}

void fl_inputs_done(fl_inputs *in)
{
    fl_source_close(in->source);
    in->source = NULL;
    for (int i = 0; in->prefetch && i < in->started; i++)
        fl_read_ahead_close(in->prefetch[i]);
    fl_free(in->prefetch);
    in->prefetch = NULL;
}
