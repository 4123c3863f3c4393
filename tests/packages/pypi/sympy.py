import sympy


def use():
    x = sympy.symbols("x")
    return [str(sympy.solve(x**2 - 3 * x + 2, x)), str(sympy.diff(sympy.sin(x) * x, x)), str(sympy.integrate(x**2, (x, 0, 3))), str(sympy.factor(x**3 - x)), str(sympy.pi.evalf(30))]
