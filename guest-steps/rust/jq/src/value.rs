//! JSON as jq treats it: what the interpreter's own values do otherwise.
//!
//! Null holds nothing and becomes what is put into it, objects have texts as
//! names and keep their order, and a slice of null is null.

use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Rem, Sub};
use std::rc::Rc;

use jaq_core::box_iter::BoxIter;
use jaq_core::path::Opt;
use jaq_core::val::{Range, ValR, ValX};
use jaq_core::{Exn, ValT};
use jaq_json::{Map, Val};
use jaq_std::ValT as _;

pub(crate) type Error = jaq_core::Error<Json>;

/// The longest list that an assignment may make of a shorter one.
const LONGEST: usize = 1 << 24;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Json(pub(crate) Val);

/// An error of the interpreter's values as one of ours.
pub(crate) fn error(error: jaq_json::Error) -> Error {
    Error::new(Json(error.into_val()))
}

impl Json {
    pub(crate) fn null() -> Self {
        Self(Val::Null)
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::from(text.to_owned())
    }

    /// The place in a list of `length` items that a number means; none before its begin.
    pub(crate) fn place(&self, length: usize) -> Option<usize> {
        let number = self.as_f64()?.floor();
        let at = if number < 0.0 { number + length as f64 } else { number };
        (at >= 0.0).then_some(at as usize)
    }

    /// The bounds of a slice, inside a list of `length` items.
    pub(crate) fn bounds(range: Range<&Self>, length: usize) -> Result<std::ops::Range<usize>, Error> {
        let bound = |bound: Option<&Self>, otherwise: usize, round: fn(f64) -> f64| match bound {
            None | Some(Self(Val::Null)) => Ok(otherwise),
            Some(bound) => {
                let number = bound.as_f64().ok_or_else(|| Error::typ(bound.clone(), "number")).map(round)?;
                let at = if number < 0.0 { number + length as f64 } else { number };
                Ok((at.max(0.0) as usize).min(length))
            }
        };
        let start = bound(range.start, 0, f64::floor)?;
        Ok(start..bound(range.end, length, f64::ceil)?.max(start))
    }

    /// The bounds that a key `{"start", "end"}` names.
    pub(crate) fn slice(key: &Map, length: usize) -> Result<std::ops::Range<usize>, Error> {
        let bound = |name: &str| key.get(&Val::utf8_str(name.to_owned())).cloned().map(Self);
        let (start, end) = (bound("start"), bound("end"));
        Self::bounds(start.as_ref()..end.as_ref(), length)
    }
}

impl ValT for Json {
    fn from_num(digits: &str) -> ValR<Self> {
        Val::from_num(digits).map(Self).map_err(error)
    }

    fn from_map<I: IntoIterator<Item = (Self, Self)>>(entries: I) -> ValR<Self> {
        let mut map = Map::default();
        for (name, value) in entries {
            if !name.is_utf8_str() {
                return Err(Error::typ(name, "name of a field"));
            }
            map.insert(name.0, value.0);
        }
        Ok(Self(Val::obj(map)))
    }

    fn key_values(self) -> BoxIter<'static, ValR<(Self, Self), Self>> {
        Box::new(self.0.key_values().map(|pair| match pair {
            Ok((key, value)) => Ok((Self(key), Self(value))),
            Err(failed) => Err(error(failed)),
        }))
    }

    fn values(self) -> Box<dyn Iterator<Item = ValR<Self>>> {
        Box::new(self.0.values().map(|value| value.map(Self).map_err(error)))
    }

    fn index(self, index: &Self) -> ValR<Self> {
        match (&self.0, &index.0) {
            (Val::Obj(fields), Val::TStr(_)) => Ok(Self(fields.get(&index.0).cloned().unwrap_or_default())),
            (Val::Obj(_), _) => Err(Error::index(self, index.clone())),
            (Val::Arr(items), Val::Num(_)) => {
                let at = index.place(items.len());
                Ok(Self(at.and_then(|at| items.get(at)).cloned().unwrap_or_default()))
            }
            _ => self.0.index(&index.0).map(Self).map_err(error),
        }
    }

    fn range(self, range: Range<&Self>) -> ValR<Self> {
        match &self.0 {
            Val::Null => Ok(self),
            Val::Arr(items) => {
                let bounds = Self::bounds(range, items.len())?;
                Ok(Self(items[bounds].iter().cloned().collect()))
            }
            _ => {
                let range = range.start.map(|start| &start.0)..range.end.map(|end| &end.0);
                self.0.range(range).map(Self).map_err(error)
            }
        }
    }

    fn map_values<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        match self.0 {
            Val::Arr(items) => {
                Rc::unwrap_or_clone(items).into_iter().filter_map(|item| f(Self(item)).next()).collect()
            }
            Val::Obj(fields) => {
                let mut map = Map::default();
                for (name, value) in Rc::unwrap_or_clone(fields) {
                    if let Some(value) = f(Self(value)).next() {
                        map.insert(name, value?.0);
                    }
                }
                Ok(Self(Val::obj(map)))
            }
            other => {
                opt.fail(Self(other), |other| Exn::from(Error::typ(other, "iterable (array or object)")))
            }
        }
    }

    fn map_index<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        index: &Self,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        let new = |old: Val| f(Self(old)).next().transpose();
        match (self.0, &index.0) {
            (Val::Null, Val::TStr(_)) => Ok(match new(Val::Null)? {
                Some(value) => Self(Val::obj(Map::from_iter([(index.0.clone(), value.0)]))),
                None => Self::null(),
            }),
            (Val::Obj(mut fields), Val::TStr(_)) => {
                let map = Rc::make_mut(&mut fields);
                let old = map.get_mut(&index.0).map(std::mem::take);
                match new(old.unwrap_or_default())? {
                    Some(value) => drop(map.insert(index.0.clone(), value.0)),
                    None => drop(map.shift_remove(&index.0)),
                }
                Ok(Self(Val::Obj(fields)))
            }
            (list @ (Val::Null | Val::Arr(_)), Val::Num(_)) => {
                let is_null = matches!(list, Val::Null);
                let mut items = if let Val::Arr(items) = list { items } else { Rc::default() };
                let Some(at) = index.place(items.len()).filter(|at| *at < LONGEST) else {
                    let message = format!("index {index} out of bounds");
                    return opt.fail(Self(Val::Arr(items)), |_| Exn::from(Error::str(message)));
                };
                let list = Rc::make_mut(&mut items);
                let old = list.get_mut(at).map(std::mem::take);
                let was_there = old.is_some();
                match new(old.unwrap_or_default())? {
                    Some(value) => {
                        if !was_there {
                            list.resize(at + 1, Val::Null);
                        }
                        list[at] = value.0;
                    }
                    None if was_there => drop(list.remove(at)),
                    None if is_null => return Ok(Self::null()),
                    None => {}
                }
                Ok(Self(Val::Arr(items)))
            }
            (list @ (Val::Null | Val::Arr(_)), Val::Obj(key)) => {
                let bound = |name: &str| key.get(&Val::utf8_str(name.to_owned())).cloned().map(Self);
                let (start, end) = (bound("start"), bound("end"));
                Self(list).map_range(start.as_ref()..end.as_ref(), opt, f)
            }
            (other, _) => opt.fail(Self(other), |other| Exn::from(Error::index(other, index.clone()))),
        }
    }

    fn map_range<'a, I: Iterator<Item = ValX<'a, Self>>>(
        self,
        range: Range<&Self>,
        opt: Opt,
        f: impl Fn(Self) -> I,
    ) -> ValX<'a, Self> {
        let is_null = matches!(self.0, Val::Null);
        let mut items = match self.0 {
            Val::Arr(items) => items,
            Val::Null => Rc::default(),
            other => return opt.fail(Self(other), |other| Exn::from(Error::typ(other, "array"))),
        };
        let bounds = match Self::bounds(range, items.len()) {
            Ok(bounds) => bounds,
            Err(failed) => return opt.fail(Self(Val::Arr(items)), |_| Exn::from(failed)),
        };
        let old = if is_null { Val::Null } else { items[bounds.clone()].iter().cloned().collect() };
        let new = match f(Self(old)).next().transpose()? {
            None if is_null => return Ok(Self::null()),
            None | Some(Self(Val::Null)) => Rc::default(),
            Some(Self(Val::Arr(new))) => new,
            Some(other) => return Err(Exn::from(Error::typ(other, "array"))),
        };
        Rc::make_mut(&mut items).splice(bounds, new.iter().cloned());
        Ok(Self(Val::Arr(items)))
    }

    fn as_bool(&self) -> bool {
        self.0.as_bool()
    }

    fn into_string(self) -> Self {
        Self(self.0.into_string())
    }
}

impl jaq_std::ValT for Json {
    fn into_seq<S: FromIterator<Self>>(self) -> Result<S, Self> {
        match self.0 {
            Val::Arr(items) => Ok(Rc::unwrap_or_clone(items).into_iter().map(Self).collect()),
            other => Err(Self(other)),
        }
    }

    fn is_int(&self) -> bool {
        self.0.is_int()
    }

    fn as_isize(&self) -> Option<isize> {
        self.0.as_isize()
    }

    fn as_f64(&self) -> Option<f64> {
        self.0.as_f64()
    }

    fn is_utf8_str(&self) -> bool {
        self.0.is_utf8_str()
    }

    fn as_bytes(&self) -> Option<&[u8]> {
        self.0.as_bytes()
    }

    fn as_sub_str(&self, sub: &[u8]) -> Self {
        Self(self.0.as_sub_str(sub))
    }

    fn from_utf8_bytes(bytes: impl AsRef<[u8]> + Send + 'static) -> Self {
        Self(Val::from_utf8_bytes(bytes))
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<bool> for Json {
    fn from(value: bool) -> Self {
        Self(value.into())
    }
}

impl From<isize> for Json {
    fn from(value: isize) -> Self {
        Self(value.into())
    }
}

impl From<usize> for Json {
    fn from(value: usize) -> Self {
        Self(value.into())
    }
}

impl From<f64> for Json {
    fn from(value: f64) -> Self {
        Self(value.into())
    }
}

impl From<String> for Json {
    fn from(value: String) -> Self {
        Self(value.into())
    }
}

impl From<Range<Self>> for Json {
    fn from(range: Range<Self>) -> Self {
        let bound = |bound: Option<Self>| bound.map_or(Val::Null, |bound| bound.0);
        Self(Val::from(Some(bound(range.start))..Some(bound(range.end))))
    }
}

impl FromIterator<Self> for Json {
    fn from_iter<I: IntoIterator<Item = Self>>(items: I) -> Self {
        Self(items.into_iter().map(|item| item.0).collect())
    }
}

/// Arithmetic is the interpreter's.
macro_rules! operator {
    ($trait:ident, $function:ident) => {
        impl $trait for Json {
            type Output = ValR<Self>;

            fn $function(self, other: Self) -> ValR<Self> {
                $trait::$function(self.0, other.0).map(Self).map_err(error)
            }
        }
    };
}

operator!(Add, add);
operator!(Sub, sub);
operator!(Mul, mul);
operator!(Div, div);
operator!(Rem, rem);

impl Neg for Json {
    type Output = ValR<Self>;

    fn neg(self) -> ValR<Self> {
        Neg::neg(self.0).map(Self).map_err(error)
    }
}
