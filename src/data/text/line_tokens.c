/* line_tokens.c - a line, cut part by part. */
#include "data/text/line_tokens.h"

/* Cut one token that is longer than what a kernel takes at once. */
static void cut_long(fl_line_tokens *t)
{
    uint32_t *at = t->tokens->at;
    const char *s = t->text;

    while (s < t->end && !fl_is_blank(*s))
        s++;
    for (int i = 0; i < 3 * FL_READ_SLACK; i++)
        at[1 + i] = (uint32_t)(s - t->text);
    t->n = 1;
}

bool fl_line_tokens_more(fl_line_tokens *t)
{
    size_t left = (size_t)(t->end - t->rest);
    bool all = left <= FL_WINDOW;

    if (t->rest > t->end)
        return false;
    t->text = t->rest;
    t->i = 0;
    t->n = t->kernels->scan_tokens(t->text, all ? (uint32_t)left : FL_WINDOW,
                                   all, t->tokens);
    if (t->n == 0)
        cut_long(t);
    t->rest = fl_token_end(t, t->n - 1) + 1;
    return true;
}
