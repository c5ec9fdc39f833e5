/* one_lane.h - the first words of vec.h for a vector of one lane: of CPUs
 * without one, and of a GPU's threads. The file that includes it has defined vf
 * as float, and FL_WORD, which begins each function. */
#pragma once

FL_WORD vf v_set(float x)
{
    return x;
}
FL_WORD vf v_add(vf a, vf b)
{
    return a + b;
}
FL_WORD vf v_sub(vf a, vf b)
{
    return a - b;
}
FL_WORD vf v_mul(vf a, vf b)
{
    return a * b;
}
FL_WORD vf v_div(vf a, vf b)
{
    return a / b;
}
FL_WORD vf v_sqrt(vf a)
{
    return sqrtf(a);
}
FL_WORD vf v_min(vf a, vf b)
{
    return a < b ? a : b;
}
FL_WORD vf v_max(vf a, vf b)
{
    return a > b ? a : b;
}
FL_WORD vf v_if_positive(vf test, vf a)
{
    return test > 0.0f ? a : 0.0f;
}
FL_WORD vf v_where_positive(vf test, vf a, vf b)
{
    return test > 0.0f ? a : b;
}
FL_WORD vf v_keep_nan(vf test, vf a)
{
    return test != test ? test : a;
}
