/* comm.c - what all communicators do alike: an abort that keeps the caller's
 * failure, and the end of work that an abort has left under way. */
#include "runtime/device/comm.h"

#include <stdio.h>

#include "base/error.h"

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
