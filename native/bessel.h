// Bessel functions of orders 0 and 1 and the Airy function Ai, in the compute type ACC.
//
// The numbers in the tables are those of Moshier's Cephes library (j0.c, j1.c, k0.c, k1.c, airy.c), which torch uses too.
// Unlike there, the phase of a large x is not rounded: sin and cos of x are combined by the addition theorem.
#ifdef ACC_REAL

// c[0] z^(n-1) + ... + c[n-1]
FUNC ACC bessel_poly(const ACC* c, int n, ACC z) {
  ACC y = c[0];
  for (int k = 1; k < n; ++k) y = y * z + c[k];
  return y;
}

// Chebyshev series of z / 2 in [-1, 1], highest coefficient first, the constant one halved (Clenshaw).
FUNC ACC bessel_series(const ACC* c, int n, ACC z) {
  ACC now = c[0], last = 0, before = 0;
  for (int k = 1; k < n; ++k) {
    before = last, last = now;
    now = z * last - before + c[k];
  }
  return K(0.5) * (now - before);
}

// Amplitudes of an order for x > 5: J = (p cos(t) - q sin(t)) sqrt(2 / (pi x)), t = x - pi/4 (order 0) or x - 3 pi/4.
FUNC void bessel_amplitudes0(ACC x, ACC* p, ACC* q) {
  const ACC pp[7] = {K(0.0007969367292973471), K(0.08283523921074408), K(1.239533716464143), K(5.447250030587687),
      K(8.74716500199817), K(5.303240382353949), K(1.0)};
  const ACC pq[7] = {K(0.0009244088105588637), K(0.08562884743544745), K(1.2535274390105895), K(5.470977403304171),
      K(8.761908832370695), K(5.306052882353947), K(1.0)};
  const ACC qp[8] = {K(-0.011366383889846916), K(-1.2825271867050931), K(-19.553954425773597), K(-93.20601521237683),
      K(-177.68116798048806), K(-147.07750515495118), K(-51.41053267665993), K(-6.050143506007285)};
  const ACC qq[7] = {K(64.3178256118178), K(856.4300259769806), K(3882.4018360540163), K(7240.467741956525),
      K(5930.727011873169), K(2062.0933166032783), K(242.0057402402914)};
  const ACC w = 5 / x, z = w * w;
  *p = bessel_poly(pp, 7, z) / bessel_poly(pq, 7, z);
  *q = w * bessel_poly(qp, 8, z) / bessel_poly(qq, 7, z);
}
FUNC void bessel_amplitudes1(ACC x, ACC* p, ACC* q) {
  const ACC pp[7] = {K(0.0007621256162081731), K(0.07313970569409176), K(1.1271960812968493), K(5.112079511468076),
      K(8.424045901417724), K(5.214515986823615), K(1.0)};
  const ACC pq[7] = {K(0.0005713231280725487), K(0.06884559087544954), K(1.105142326340617), K(5.073863861286015),
      K(8.399855543276042), K(5.209828486823619), K(1.0)};
  const ACC qp[8] = {K(0.05108625947501766), K(4.982138729512334), K(75.82382841325453), K(366.7796093601508),
      K(710.8563049989261), K(597.4896124006136), K(211.68875710057213), K(25.207020585802372)};
  const ACC qq[7] = {K(74.23732770356752), K(1056.4488603826283), K(4986.410583376536), K(9562.318924047562),
      K(7997.041604473507), K(2826.1927851763908), K(336.0936078106983)};
  const ACC w = 5 / x, z = w * w;
  *p = bessel_poly(pp, 7, z) / bessel_poly(pq, 7, z);
  *q = w * bessel_poly(qp, 8, z) / bessel_poly(qq, 7, z);
}

// (a (cos x + sin x) + b (sin x - cos x)) / sqrt(pi x)
FUNC ACC bessel_wave(ACC x, ACC a, ACC b) {
  const ACC s = sin(x), c = cos(x);
  return (a * (c + s) + b * (s - c)) * K(0.5641895835477563) / sqrt(x);
}

FUNC ACC bessel_j0(ACC x) {
  const ACC rp[4] = {K(-4794432209.782018), K(1956174919465.5657), K(-249248344360967.72), K(9708622510473064.0)};
  const ACC rq[8] = {K(499.563147152651), K(173785.4016763747), K(48440965.83399621), K(11185553704.535683),
      K(2112775201154.892), K(310518229857422.56), K(3.1812195594320496e+16), K(1.7108629408104315e+18)};
  const ACC a = fabs(x), z = a * a;
  if (a <= K(1e-5)) return 1 - z / 4;
  if (a <= 5) {  // the first two zeros are factors
    const ACC zeros = (z - K(5.783185962946785)) * (z - K(30.471262343662087));
    return zeros * bessel_poly(rp, 4, z) / bessel_poly(rq, 8, z);
  }
  ACC p, q;
  bessel_amplitudes0(a, &p, &q);
  return bessel_wave(a, p, -q);
}

FUNC ACC bessel_j1(ACC x) {
  const ACC rp[4] = {K(-899971225.7055594), K(452228297998.19403), K(-72749424522181.83), K(3682957328638529.0)};
  const ACC rq[8] = {K(620.8364781180543), K(256987.25675774884), K(83514679.14319493), K(22151159547.97925),
      K(4749141220799.914), K(784369607876235.9), K(8.952223361846274e+16), K(5.322786203326801e+18)};
  const ACC a = fabs(x), z = a * a;
  if (a <= 5) {
    const ACC zeros = (z - K(14.681970642123893)) * (z - K(49.2184563216946));
    return bessel_poly(rp, 4, z) / bessel_poly(rq, 8, z) * x * zeros;
  }
  ACC p, q;
  bessel_amplitudes1(a, &p, &q);
  const ACC y = bessel_wave(a, q, p);
  return x < 0 ? -y : y;
}

FUNC ACC bessel_y0(ACC x) {
  const ACC yp[8] = {K(15592.436785523574), K(-14663929.59039716), K(5435264770.518765), K(-982136065717.9115),
      K(87590639439536.7), K(-3466283033847297.0), K(4.4273326857256984e+16), K(-1.8495080043698668e+16)};
  const ACC yq[7] = {K(1041.2835366425984), K(626107.330137135), K(268919633.39381415), K(86400248710.3935),
      K(20297961275010.555), K(3171577528429750.5), K(2.5059625617265306e+17)};
  if (!(x > 0)) return x == 0 ? -M_INF : M_NAN;
  if (x <= 5) {
    const ACC z = x * x, smooth = bessel_poly(yp, 8, z) / bessel_poly(yq, 7, z);
    return smooth + K(0.6366197723675814) * log(x) * bessel_j0(x);
  }
  ACC p, q;
  bessel_amplitudes0(x, &p, &q);
  return bessel_wave(x, q, p);
}

FUNC ACC bessel_y1(ACC x) {
  const ACC yp[6] = {K(1263204747.9017804), K(-647355876379.1603), K(114509511541823.73), K(-8127702555013251.0),
      K(2.024394757135949e+17), K(-7.788771962659501e+17)};
  const ACC yq[8] = {K(594.3015923461282), K(235564.09294306856), K(73481194.44597217), K(18760131610.870617),
      K(3882312774962.3857), K(620557727146953.8), K(6.871410873553005e+16), K(3.9727060811656064e+18)};
  if (!(x > 0)) return x == 0 ? -M_INF : M_NAN;
  if (x <= 5) {
    const ACC z = x * x, smooth = x * (bessel_poly(yp, 6, z) / bessel_poly(yq, 8, z));
    return smooth + K(0.6366197723675814) * (bessel_j1(x) * log(x) - 1 / x);
  }
  ACC p, q;
  bessel_amplitudes1(x, &p, &q);
  return bessel_wave(x, -p, q);
}

// exp(x) K_0(x); the caller knows how to bring x = 0 and negative x to an end.
FUNC ACC bessel_k0e(ACC x) {
  const ACC near[10] = {K(1.374465435613523e-16), K(4.25981614279661e-14), K(1.0349695257633842e-11),
      K(1.904516377220209e-09), K(2.5347910790261494e-07), K(2.286212103119452e-05), K(0.001264615411446926),
      K(0.0359799365153615), K(0.3442898999246285), K(-0.5353273932339028)};
  const ACC far[25] = {K(5.300433772686263e-18), K(-1.6475804301524212e-17), K(5.2103915050390274e-17),
      K(-1.678231096805412e-16), K(5.512055978524319e-16), K(-1.848593377343779e-15), K(6.3400764774050706e-15),
      K(-2.2275133269916698e-14), K(8.032890775363575e-14), K(-2.9800969231727303e-13), K(1.140340588208475e-12),
      K(-4.514597883373944e-12), K(1.8559491149547177e-11), K(-7.957489244477107e-11), K(3.577397281400301e-10),
      K(-1.69753450938906e-09), K(8.574034017414225e-09), K(-4.660489897687948e-08), K(2.766813639445015e-07),
      K(-1.8317555227191195e-06), K(1.39498137188765e-05), K(-0.00012849549581627802), K(0.0015698838857300533),
      K(-0.0314481013119645), K(2.4403030820659555)};
  if (!(x > 0)) return x == 0 ? M_INF : M_NAN;
  if (x > 2) return bessel_series(far, 25, 8 / x - 2) / sqrt(x);
  return (bessel_series(near, 10, x * x - 2) - log(x / 2) * s_i0(x)) * exp(x);
}
FUNC ACC bessel_k1e(ACC x) {
  const ACC near[11] = {K(-7.023863479386288e-18), K(-2.427449850519366e-15), K(-6.666901694199329e-13),
      K(-1.4114883926335278e-10), K(-2.213387630734726e-08), K(-2.4334061415659684e-06), K(-0.0001730288957513052),
      K(-0.006975723859639864), K(-0.12261118082265715), K(-0.3531559607765449), K(1.5253002273389478)};
  const ACC far[25] = {K(-5.756744483665017e-18), K(1.7940508731475592e-17), K(-5.689462558442859e-17),
      K(1.838093544366639e-16), K(-6.057047248373319e-16), K(2.038703165624334e-15), K(-7.019837090418314e-15),
      K(2.4771544244813043e-14), K(-8.976705182324994e-14), K(3.3484196660784293e-13), K(-1.2891739609510289e-12),
      K(5.13963967348173e-12), K(-2.1299678384275683e-11), K(9.218315187605006e-11), K(-4.1903547593418965e-10),
      K(2.015049755197033e-09), K(-1.0345762465678097e-08), K(5.7410841254500495e-08), K(-3.5019606030878126e-07),
      K(2.406484947837217e-06), K(-1.936197974166083e-05), K(0.00019521551847135162), K(-0.002857816859622779),
      K(0.10392373657681724), K(2.7206261904844427)};
  if (!(x > 0)) return x == 0 ? M_INF : M_NAN;
  if (x > 2) return bessel_series(far, 25, 8 / x - 2) / sqrt(x);
  return (bessel_series(near, 11, x * x - 2) / x + log(x / 2) * s_i1(x)) * exp(x);
}
FUNC ACC bessel_k0(ACC x) { return x == 0 ? M_INF : exp(-x) * bessel_k0e(x); }
FUNC ACC bessel_k1(ACC x) { return x == 0 ? M_INF : exp(-x) * bessel_k1e(x); }

// sin(x) / x; by its series near 0.
FUNC ACC bessel_spherical_j0(ACC x) {
  const ACC z = x * x;
  if (z == M_INF && fabs(x) == M_INF) return 0;
  if (z < K(0.25)) {
    return 1 - z / 6 * (1 - z / 20 * (1 - z / 42 * (1 - z / 72 * (1 - z / 110 * (1 - z / 156)))));
  }
  return sin(x) / x;
}

// Ai(x): Taylor series around 0, asymptotic forms beyond 2.09; as torch, NaN for infinities.
FUNC ACC bessel_airy_near(ACC x) {
  const ACC z = x * x * x;
  ACC f = 1, g = x, even = 1, odd = x;
  for (int k = 3; k < 100; k += 3) {
    even *= z / ((ACC)k * (k - 1)), odd *= z / ((ACC)k * (k + 1));
    f += even, g += odd;
    if (fabs(even) <= fabs(f) * S_EPS && fabs(odd) <= fabs(g) * S_EPS) break;
  }
  return K(0.3550280538878172) * f - K(0.25881940379280677) * g;
}
FUNC ACC bessel_airy(ACC x) {
  const ACC an[8] = {K(0.346538101525629), K(12.007595273964581), K(76.27960536152345), K(168.08922493463058),
      K(159.75639135016442), K(70.53609068404442), K(14.026469116338967), K(1.0)};
  const ACC ad[8] = {K(0.5675945326387702), K(14.75625625848472), K(84.51389701414746), K(177.31808814540045),
      K(164.2346928715297), K(71.47784008255756), K(14.095913560783403), K(1.0)};
  const ACC afn[9] = {K(-0.1316963234183318), K(-0.6264565444319123), K(-0.6931580360369335), K(-0.2797799815451191),
      K(-0.04919001326095003), K(-0.004062659235948854), K(-0.0001592764962392621), K(-2.776491081552329e-06),
      K(-1.6778769848911465e-08)};
  const ACC afd[9] = {K(13.356042070655324), K(32.682503279522464), K(26.736704094149957), K(9.187074029072596),
      K(1.4752914677166642), K(0.11568717379518804), K(0.004402916416152112), K(7.547203482874142e-05),
      K(4.5185009297058035e-07)};
  const ACC agn[11] = {K(0.01973399320916857), K(0.39110302961568827), K(1.0657989759959559), K(0.9391692298166502),
      K(0.35146565610554764), K(0.06338889196289255), K(0.005858041130483885), K(0.000282851600836737),
      K(6.98793669997261e-06), K(8.117892395543892e-08), K(3.415517847659236e-10)};
  const ACC agd[10] = {K(9.30892908077442), K(19.835292871831214), K(15.564662893286462), K(5.476860694229755),
      K(0.9542936116189619), K(0.08645808263523921), K(0.004126565238242226), K(0.00010125908511650914),
      K(1.1716673321441352e-06), K(4.9183457006293e-09)};
  if (fabs(x) == M_INF) return M_NAN;
  if (x > K(103.892)) return 0;
  const ACC a = fabs(x), root = sqrt(a), zeta = 2 * a * root / 3, z = 1 / zeta;
  const ACC scale = K(0.5641895835477563) / sqrt(root);
  if (x >= K(2.09)) return K(0.5) * scale * bessel_poly(an, 8, z) / bessel_poly(ad, 8, z) * exp(-zeta);
  if (!(x < K(-2.09))) return bessel_airy_near(x);
  const ACC zz = z * z;
  const ACC p = 1 + zz * bessel_poly(afn, 9, zz) / bessel_poly(afd, 9, zz);
  const ACC q = z * bessel_poly(agn, 11, zz) / bessel_poly(agd, 10, zz);
  const ACC s = sin(zeta), c = cos(zeta);
  return scale * K(0.7071067811865476) * (p * (s + c) - q * (c - s));
}
#endif
