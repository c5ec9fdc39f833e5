/* line_tokens.h - the tokens of a line, which blanks separate, found by kernels
 * a part of the line at a time. */
#pragma once

#include "data/text/text_kernels.h"
#include "data/text/text_lines.h"

typedef struct fl_line_tokens {
    const fl_kernels *kernels;
    fl_tokens *tokens; /* of the part */
    const char *text;  /* the part of the line that is cut into tokens */
    int i, n;          /* of n tokens, the i-th is the next one */
    const char *rest;  /* what is not cut yet */
    const char *end;   /* of the line */
} fl_line_tokens;

static inline void fl_line_tokens_begin(fl_line_tokens *t, const fl_line *line)
{
    t->i = t->n = 0;
    t->rest = line->text;
    t->end = line->text + line->size;
}

static inline const char *fl_token_begin(const fl_line_tokens *t, int token)
{
    return t->text + (t->tokens->at[token] + 1);
}

static inline const char *fl_token_end(const fl_line_tokens *t, int token)
{
    return t->text + t->tokens->at[token + 1];
}

/* Cut the next part of the line; false: there is none. */
bool fl_line_tokens_more(fl_line_tokens *t);

/* The next token that is not empty. */
static inline bool fl_line_tokens_next(fl_line_tokens *t, int *token)
{
    do {
        if (t->i == t->n && !fl_line_tokens_more(t))
            return false;
        *token = t->i++;
    } while (fl_token_begin(t, *token) == fl_token_end(t, *token));
    return true;
}
