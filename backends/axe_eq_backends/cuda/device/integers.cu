// Cells of integers, as numpy defines them: they wrap around, and nothing divides by zero. In C what
// overflows means nothing, and compilers rely on that; unsigned numbers wrap around.

__device__ __forceinline__ ${type} add_${kind}(${type} a, ${type} b) {
  return (${type})((${bare})a + (${bare})b);
}

__device__ __forceinline__ ${type} sub_${kind}(${type} a, ${type} b) {
  return (${type})((${bare})a - (${bare})b);
}

__device__ __forceinline__ ${type} mul_${kind}(${type} a, ${type} b) {
  return (${type})((${bare})a * (${bare})b);
}

__device__ __forceinline__ ${type} bit_not_${kind}(${type} a) {
  return (${type})~a;
}

__device__ __forceinline__ ${type} neg_${kind}(${type} a) {
  return (${type})(0 - (${bare})a);
}

__device__ __forceinline__ ${type} abs_${kind}(${type} a) {
  return a < 0 ? (${type})(0 - (${bare})a) : a;
}

__device__ __forceinline__ ${type} remainder_${kind}(${type} a, ${type} b) {
  if (b == 0 || b == -1) return 0;
  ${type} rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

__device__ __forceinline__ ${type} floor_divide_${kind}(${type} a, ${type} b) {
  if (b == 0) return 0;
  if (b == -1) return (${bare})0 - a;
  return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

__device__ __forceinline__ ${type} shl_${kind}(${type} a, ${type} b) {
  return (${bare})b < ${bits} ? (${bare})a << b : 0;
}

__device__ __forceinline__ ${type} shr_${kind}(${type} a, ${type} b) {
  return (${bare})b < ${bits} ? a >> b : -(a < 0);
}

__device__ __forceinline__ ${type} pow_${kind}(${type} a, ${type} b) {
  if (b < 0) return a == 1 || a == -1 ? (b & 1 ? a : 1) : 0;
  ${bare} power = 1, base = a;
  for (; b; b >>= 1, base *= base) if (b & 1) power *= base;
  return power;
}
