/* vec_math.h - functions of vectors, in the words of vec.h. A GPU's threads
 * have them under the same names in runtime/device/cuda/formula_cuda.h. NaN
 * gives NaN. */
#pragma once

#include "runtime/simd/vec.h"

/* e^y, |y| < 89, is 2^n (1 + r + r^2 p): returns n. The polynomial of Cephes'
 * expf (Moshier 1992). */
static inline vf v_exp_parts_(vf y, vf *r_, vf *p_)
{
    vf n = v_round(v_mul(y, v_set(1.44269504088896341f)));
    vf r, p = v_set(1.9875691500e-4f);

    n = v_min(n, v_set(127.0f));
    r = v_fma(n, v_set(-0.693359375f), y);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    *p_ = v_fma(p, r, v_set(5.0000001201e-1f));
    *r_ = r;
    return n;
}

/* e^x, within 2 units in the last place for |x| < 87; beyond, x counts as
 * -87.33 or 88.72. */
static inline vf v_exp(vf x)
{
    vf r, p;
    vf n = v_exp_parts_(v_min(v_max(x, v_set(-87.33f)), v_set(88.72f)), &r, &p);

    p = v_fma(v_mul(r, r), p, v_add(r, v_set(1.0f)));
    return v_keep_nan(x, v_scale2(p, n));
}

/* The same with infinity above 88.72, and 0 below -87.33. */
static inline vf v_exp_to_infinity(vf x)
{
    vf y = v_if_positive(v_add(x, v_set(87.33f)), v_exp(x));

    y = v_where_positive(v_sub(x, v_set(88.7228317f)), v_set(INFINITY), y);
    return v_keep_nan(x, y);
}

/* e^x - 1 of x <= 0, whose small values do not cancel. */
static inline vf v_expm1(vf x)
{
    vf r, p, n = v_exp_parts_(v_max(x, v_set(-87.33f)), &r, &p);
    vf scale = v_scale2(v_set(1.0f), n);

    p = v_fma(v_mul(r, r), p, r);
    return v_keep_nan(x, v_fma(scale, p, v_sub(scale, v_set(1.0f))));
}

/* log x, within 2 units in the last place; -infinity of 0, NaN below. The
 * polynomial of Cephes' logf. */
static inline vf v_log(vf x)
{
    vf in = v_min(x, v_set(3.40282347e38f));
    vf e = v_exponent(in), m = v_mantissa(in), z, y;
    vf large = v_sub(m, v_set(1.41421356f));

    e = v_add(e, v_if_positive(large, v_set(1.0f)));
    m = v_where_positive(large, v_mul(m, v_set(0.5f)), m);
    m = v_sub(m, v_set(1.0f));
    z = v_mul(m, m);
    y = v_fma(v_set(7.0376836292e-2f), m, v_set(-1.1514610310e-1f));
    y = v_fma(y, m, v_set(1.1676998740e-1f));
    y = v_fma(y, m, v_set(-1.2420140846e-1f));
    y = v_fma(y, m, v_set(1.4249322787e-1f));
    y = v_fma(y, m, v_set(-1.6668057665e-1f));
    y = v_fma(y, m, v_set(2.0000714765e-1f));
    y = v_fma(y, m, v_set(-2.4999993993e-1f));
    y = v_fma(y, m, v_set(3.3333331174e-1f));
    y = v_mul(v_mul(y, m), z);
    y = v_fma(e, v_set(-2.12194440e-4f), y);
    y = v_add(m, v_fma(z, v_set(-0.5f), y));
    y = v_fma(e, v_set(0.693359375f), y);
    y = v_where_positive(v_sub(x, in), x, y); /* infinity */
    return v_where_positive(
        x, y, v_div(v_set(-1.0f), v_sqrt(v_add(x, v_set(0.0f))))); /* -0 is 0 */
}

/* log(1 + x) of x >= 0: what 1 + x rounds away is made up for (Kahan). */
static inline vf v_log1p(vf x)
{
    vf u = v_add(v_set(1.0f), x), less = v_sub(u, v_set(1.0f));

    return v_where_positive(less, v_mul(v_log(u), v_div(x, less)), x);
}

/* 1 / (1 + e^-x) */
static inline vf v_sigmoid(vf x)
{
    vf e = v_exp(v_sub(v_set(0.0f), x));

    return v_div(v_set(1.0f), v_add(v_set(1.0f), e));
}

/* tanh x: an odd polynomial for |x| < 0.625 (Cephes' tanhf), elsewhere
 * 1 - 2 / (e^2x + 1), where nothing cancels. */
static inline vf v_tanh(vf x)
{
    vf t = v_min(v_max(x, v_set(-9.1f)), v_set(9.1f));
    vf far = v_sub(v_set(1.0f),
                   v_div(v_set(2.0f), v_add(v_exp(v_add(t, t)), v_set(1.0f))));
    vf z = v_mul(t, t);
    vf p = v_set(-5.70498872745e-3f);
    vf outside = v_sub(z, v_set(0.625f * 0.625f));

    p = v_fma(p, z, v_set(2.06390887954e-2f));
    p = v_fma(p, z, v_set(-5.37397155531e-2f));
    p = v_fma(p, z, v_set(1.33314422036e-1f));
    p = v_fma(p, z, v_set(-3.33332819422e-1f));
    p = v_fma(v_mul(p, z), t, t);
    return v_keep_nan(x, v_add(v_if_positive(outside, far),
                               v_sub(p, v_if_positive(outside, p))));
}

/* The error function, within 4 units in the last place: x P(x^2) / Q(x^2), with
 * Eigen's coefficients; beyond 4 it is 1 in float. */
static inline vf v_erf(vf x)
{
    vf t = v_min(v_max(x, v_set(-4.0f)), v_set(4.0f));
    vf z = v_mul(t, t);
    vf p = v_set(-2.72614225801306e-10f), q = v_set(-1.45660718464996e-05f);

    p = v_fma(p, z, v_set(2.77068142495902e-08f));
    p = v_fma(p, z, v_set(-2.10102402082508e-06f));
    p = v_fma(p, z, v_set(-5.69250639462346e-05f));
    p = v_fma(p, z, v_set(-7.34990630326855e-04f));
    p = v_fma(p, z, v_set(-2.95459980854025e-03f));
    p = v_fma(p, z, v_set(-1.60960333262415e-02f));
    q = v_fma(q, z, v_set(-2.13374055278905e-04f));
    q = v_fma(q, z, v_set(-1.68282697438203e-03f));
    q = v_fma(q, z, v_set(-7.37332916720468e-03f));
    q = v_fma(q, z, v_set(-1.42647390514189e-02f));
    return v_keep_nan(x, v_div(v_mul(t, p), q));
}

/* x^a, lane by lane. */
static inline vf v_pow(vf x, vf a)
{
    float of[FL_VW], to[FL_VW];

    v_store(of, x, FL_VW);
    v_store(to, a, FL_VW);
    for (int i = 0; i < FL_VW; i++)
        of[i] = powf(of[i], to[i]);
    return v_load(of, FL_VW);
}
