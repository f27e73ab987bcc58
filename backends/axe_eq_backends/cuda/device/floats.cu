// Cells of floats that C has no function for, as numpy defines them.

__device__ __forceinline__ ${type} sign_${kind}(${type} x) {
  return x != x ? x : (${type})((x > 0) - (x < 0));
}

__device__ __forceinline__ ${type} remainder_${kind}(${type} a, ${type} b) {
  ${type} rest = fmod${f}(a, b);
  if (rest == 0) return copysign${f}((${type})0, b);
  return (b < 0) != (rest < 0) ? rest + b : rest;
}

__device__ __forceinline__ ${type} floor_divide_${kind}(${type} a, ${type} b) {
  if (b == 0) return a / b;
  ${type} rest = fmod${f}(a, b);
  ${type} whole = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) whole -= 1.0${f};
  if (whole == 0) return copysign${f}((${type})0, a / b);
  ${type} down = floor${f}(whole);
  return whole - down > 1.0${f} / 2 ? down + 1.0${f} : down;
}

__device__ __forceinline__ ${type} logaddexp_${kind}(${type} a, ${type} b) {
  if (a == b) return a + log${f}(2 * 1.0${f});
  return a > b ? a + log1p${f}(exp${f}(b - a)) : b + log1p${f}(exp${f}(a - b));
}
