/* formulas.h - what the formulas of unaries.def, binaries.def and
 * comparisons.def are made of, on CPUs and GPUs: the file that includes it has
 * the words, and FL_WORD. */
#pragma once

/* |x|; of NaN any number. */
FL_WORD vf v_size(vf x)
{
    return v_max(x, v_sub(v_set(0.0f), x));
}

/* 1 where x > y, else 0; where either is NaN NaN. The difference of two numbers
 * is 0 only where they are equal; of two infinite ones it is NaN, which is not
 * positive. */
FL_WORD vf v_is_above(vf x, vf y)
{
    vf above = v_if_positive(v_sub(x, y), v_set(1.0f));

    return v_keep_nan(x, v_keep_nan(y, above));
}

/* 1 where x is not 0, else 0; NaN where it is. */
FL_WORD vf v_is_true(vf x)
{
    return v_keep_nan(x, v_if_positive(v_size(x), v_set(1.0f)));
}

/* 0 of 1, 1 of 0. */
FL_WORD vf v_not(vf x)
{
    return v_sub(v_set(1.0f), x);
}

/* (1 + erf(x / sqrt 2)) / 2, the share of a normal distribution below x, and
 * its density at x (Hendrycks and Gimpel 2016). */
FL_WORD vf v_gelu_share(vf x)
{
    vf e = v_erf(v_mul(x, v_set(0.70710678118654752f)));

    return v_fma(v_set(0.5f), e, v_set(0.5f));
}
FL_WORD vf v_gelu_density(vf x)
{
    vf e = v_exp(v_mul(v_mul(v_set(-0.5f), x), x));

    return v_mul(v_set(0.39894228040143268f), e);
}

/* The same by tanh, with the derivative of the share. */
FL_WORD vf v_gelu_tanh_of(vf x)
{
    vf cubic = v_fma(v_mul(v_set(0.044715f), x), v_mul(x, x), x);

    return v_tanh(v_mul(v_set(0.79788456080286536f), cubic));
}
FL_WORD vf v_gelu_tanh_share(vf x)
{
    return v_fma(v_set(0.5f), v_gelu_tanh_of(x), v_set(0.5f));
}
FL_WORD vf v_gelu_tanh_slope(vf x)
{
    vf t = v_gelu_tanh_of(x);
    vf inner = v_fma(v_mul(v_set(0.134145f), x), x, v_set(1.0f));

    inner = v_mul(v_set(0.39894228040143268f), inner);
    return v_mul(inner, v_sub(v_set(1.0f), v_mul(t, t)));
}

/* The derivative of x sigmoid(a x): s + a x s (1 - s). */
FL_WORD vf v_swish_slope(vf x, vf a)
{
    vf t = v_mul(a, x), s = v_sigmoid(t);

    return v_add(s, v_mul(v_mul(t, s), v_sub(v_set(1.0f), s)));
}
