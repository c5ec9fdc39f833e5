/* comm.c - what all communicators do alike: a text of one rank for all, an
 * abort that keeps the caller's failure, and the end of work that an abort has
 * left under way. */
#include "runtime/device/comm.h"

#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"

fleet_status fl_comm_broadcast_text(fl_comm *p, const char *mine, int root,
                                    char **text)
{
    int64_t n = (int64_t)strlen(mine);

    FL_TRY(p->methods->broadcast(p, &n, sizeof n, root, NULL));
    FL_TRY(FL_NEW(text, (size_t)n + 1));
    if (p->rank == root)
        memcpy(*text, mine, (size_t)n);
    return p->methods->broadcast(p, *text, n, root, NULL);
}

void fl_comm_abort(fl_comm *p, const char *why)
{
    fl_error before;
    char words[sizeof before.text];

    snprintf(words, sizeof words, "%s", why);
    fl_error_take(&before, fl_last_code());
    p->methods->abort(p, words);
    if (*before.text)
        fl_error_raise(&before);
    else
        fl_error_clear();
}

void fl_comm_end_work(fl_comm *p, fl_work **work, int n)
{
    fl_error why;

    fl_error_take(&why, fl_last_code());
    for (int i = 0; i < n; i++)
        if (work[i])
            p->methods->wait(p, &work[i]);
    fl_error_raise(&why);
}
