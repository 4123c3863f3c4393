// What packages expect on `globalThis`: console, TextEncoder, TextDecoder, URL, URLSearchParams, structuredClone and crypto.
// Generated; its sources are guest-steps/js/globals in the repository of lobster. It contains whatwg-url (MIT, (c) Sebastian
// Mayr), webidl-conversions (BSD-2-Clause, (c) Domenic Denicola) and punycode (MIT, (c) Mathias Bynens).
var __create=Object.create;var __defProp=Object.defineProperty;var __getOwnPropDesc=Object.getOwnPropertyDescriptor;var __getOwnPropNames=Object.getOwnPropertyNames;var __getProtoOf=Object.getPrototypeOf,__hasOwnProp=Object.prototype.hasOwnProperty;var __esm=(fn,res,err)=>function(){if(err)throw err[0];try{return fn&&(res=(0,fn[__getOwnPropNames(fn)[0]])(fn=0)),res}catch(e){
throw err=[e],e}};var __commonJS=(cb,mod)=>function(){try{return mod||(0,cb[__getOwnPropNames(cb)[0]])((mod={exports:{}}).exports,mod),mod.
exports}catch(e){throw mod=0,e}};var __export=(target,all)=>{for(var name in all)__defProp(target,name,{get:all[name],enumerable:!0})},__copyProps=(to,from,except,desc)=>{
if(from&&typeof from=="object"||typeof from=="function")for(let key of __getOwnPropNames(from))!__hasOwnProp.call(to,key)&&
key!==except&&__defProp(to,key,{get:()=>from[key],enumerable:!(desc=__getOwnPropDesc(from,key))||desc.enumerable});return to};var __toESM=(mod,isNodeMode,target)=>(target=mod!=null?__create(__getProtoOf(mod)):{},__copyProps(isNodeMode||!mod||!mod.
__esModule?__defProp(target,"default",{value:mod,enumerable:!0}):target,mod)),__toCommonJS=mod=>__copyProps(__defProp({},
"__esModule",{value:!0}),mod);var require_lib=__commonJS({"node_modules/webidl-conversions/lib/index.js"(exports){"use strict";function makeException(ErrorType,message,options){
return options.globals&&(ErrorType=options.globals[ErrorType.name]),new ErrorType(`${options.context?options.context:"Va\
lue"} ${message}.`)}function toNumber(value,options){if(typeof value=="bigint")throw makeException(TypeError,"is a BigIn\
t which cannot be converted to a number",options);return options.globals?options.globals.Number(value):Number(value)}function evenRound(x){
return x>0&&x%1===.5&&(x&1)===0||x<0&&x%1===-.5&&(x&1)===1?censorNegativeZero(Math.floor(x)):censorNegativeZero(Math.round(
x))}function integerPart(n){return censorNegativeZero(Math.trunc(n))}function sign(x){return x<0?-1:1}function modulo(x,y){
let signMightNotMatch=x%y;return sign(y)!==sign(signMightNotMatch)?signMightNotMatch+y:signMightNotMatch}function censorNegativeZero(x){
return x===0?0:x}function createIntegerConversion(bitLength,{unsigned}){let lowerBound,upperBound;unsigned?(lowerBound=0,
upperBound=2**bitLength-1):(lowerBound=-(2**(bitLength-1)),upperBound=2**(bitLength-1)-1);let twoToTheBitLength=2**bitLength,
twoToOneLessThanTheBitLength=2**(bitLength-1);return(value,options={})=>{let x=toNumber(value,options);if(x=censorNegativeZero(
x),options.enforceRange){if(!Number.isFinite(x))throw makeException(TypeError,"is not a finite number",options);if(x=integerPart(
x),x<lowerBound||x>upperBound)throw makeException(TypeError,`is outside the accepted range of ${lowerBound} to ${upperBound}\
, inclusive`,options);return x}return!Number.isNaN(x)&&options.clamp?(x=Math.min(Math.max(x,lowerBound),upperBound),x=evenRound(
x),x):!Number.isFinite(x)||x===0?0:(x=integerPart(x),x>=lowerBound&&x<=upperBound?x:(x=modulo(x,twoToTheBitLength),!unsigned&&
x>=twoToOneLessThanTheBitLength?x-twoToTheBitLength:x))}}function createLongLongConversion(bitLength,{unsigned}){let upperBound=Number.
MAX_SAFE_INTEGER,lowerBound=unsigned?0:Number.MIN_SAFE_INTEGER,asBigIntN=unsigned?BigInt.asUintN:BigInt.asIntN;return(value,options={})=>{
let x=toNumber(value,options);if(x=censorNegativeZero(x),options.enforceRange){if(!Number.isFinite(x))throw makeException(
TypeError,"is not a finite number",options);if(x=integerPart(x),x<lowerBound||x>upperBound)throw makeException(TypeError,
`is outside the accepted range of ${lowerBound} to ${upperBound}, inclusive`,options);return x}if(!Number.isNaN(x)&&options.
clamp)return x=Math.min(Math.max(x,lowerBound),upperBound),x=evenRound(x),x;if(!Number.isFinite(x)||x===0)return 0;let xBigInt=BigInt(
integerPart(x));return xBigInt=asBigIntN(bitLength,xBigInt),Number(xBigInt)}}exports.any=value=>value;exports.undefined=
()=>{};exports.boolean=value=>!!value;exports.byte=createIntegerConversion(8,{unsigned:!1});exports.octet=createIntegerConversion(
8,{unsigned:!0});exports.short=createIntegerConversion(16,{unsigned:!1});exports["unsigned short"]=createIntegerConversion(
16,{unsigned:!0});exports.long=createIntegerConversion(32,{unsigned:!1});exports["unsigned long"]=createIntegerConversion(
32,{unsigned:!0});exports["long long"]=createLongLongConversion(64,{unsigned:!1});exports["unsigned long long"]=createLongLongConversion(
64,{unsigned:!0});exports.double=(value,options={})=>{let x=toNumber(value,options);if(!Number.isFinite(x))throw makeException(
TypeError,"is not a finite floating-point value",options);return x};exports["unrestricted double"]=(value,options={})=>toNumber(
value,options);exports.float=(value,options={})=>{let x=toNumber(value,options);if(!Number.isFinite(x))throw makeException(
TypeError,"is not a finite floating-point value",options);if(Object.is(x,-0))return x;let y=Math.fround(x);if(!Number.isFinite(
y))throw makeException(TypeError,"is outside the range of a single-precision floating-point value",options);return y};exports["\
unrestricted float"]=(value,options={})=>{let x=toNumber(value,options);return isNaN(x)||Object.is(x,-0)?x:Math.fround(x)};
exports.DOMString=(value,options={})=>{if(options.treatNullAsEmptyString&&value===null)return"";if(typeof value=="symbol")
throw makeException(TypeError,"is a symbol, which cannot be converted to a string",options);return(options.globals?options.
globals.String:String)(value)};exports.ByteString=(value,options={})=>{let x=exports.DOMString(value,options),c;for(let i=0;(c=
x.codePointAt(i))!==void 0;++i)if(c>255)throw makeException(TypeError,"is not a valid ByteString",options);return x};exports.
USVString=(value,options={})=>{let S=exports.DOMString(value,options),n=S.length,U=[];for(let i=0;i<n;++i){let c=S.charCodeAt(
i);if(c<55296||c>57343)U.push(String.fromCodePoint(c));else if(56320<=c&&c<=57343)U.push(String.fromCodePoint(65533));else if(i===
n-1)U.push(String.fromCodePoint(65533));else{let d=S.charCodeAt(i+1);if(56320<=d&&d<=57343){let a=c&1023,b=d&1023;U.push(
String.fromCodePoint(65536+1024*a+b)),++i}else U.push(String.fromCodePoint(65533))}}return U.join("")};exports.object=(value,options={})=>{
if(value===null||typeof value!="object"&&typeof value!="function")throw makeException(TypeError,"is not an object",options);
return value};var abByteLengthGetter=Object.getOwnPropertyDescriptor(ArrayBuffer.prototype,"byteLength").get,sabByteLengthGetter=typeof SharedArrayBuffer==
"function"?Object.getOwnPropertyDescriptor(SharedArrayBuffer.prototype,"byteLength").get:null;function isNonSharedArrayBuffer(value){
try{return abByteLengthGetter.call(value),!0}catch{return!1}}function isSharedArrayBuffer(value){try{return sabByteLengthGetter.
call(value),!0}catch{return!1}}function isArrayBufferDetached(value){try{return new Uint8Array(value),!1}catch{return!0}}
exports.ArrayBuffer=(value,options={})=>{if(!isNonSharedArrayBuffer(value))throw options.allowShared&&!isSharedArrayBuffer(
value)?makeException(TypeError,"is not an ArrayBuffer or SharedArrayBuffer",options):makeException(TypeError,"is not an \
ArrayBuffer",options);if(isArrayBufferDetached(value))throw makeException(TypeError,"is a detached ArrayBuffer",options);
return value};var dvByteLengthGetter=Object.getOwnPropertyDescriptor(DataView.prototype,"byteLength").get;exports.DataView=
(value,options={})=>{try{dvByteLengthGetter.call(value)}catch{throw makeException(TypeError,"is not a DataView",options)}
if(!options.allowShared&&isSharedArrayBuffer(value.buffer))throw makeException(TypeError,"is backed by a SharedArrayBuff\
er, which is not allowed",options);if(isArrayBufferDetached(value.buffer))throw makeException(TypeError,"is backed by a \
detached ArrayBuffer",options);return value};var typedArrayNameGetter=Object.getOwnPropertyDescriptor(Object.getPrototypeOf(
Uint8Array).prototype,Symbol.toStringTag).get;[Int8Array,Int16Array,Int32Array,Uint8Array,Uint16Array,Uint32Array,Uint8ClampedArray,
Float32Array,Float64Array].forEach(func=>{let{name}=func,article=/^[AEIOU]/u.test(name)?"an":"a";exports[name]=(value,options={})=>{
if(!ArrayBuffer.isView(value)||typedArrayNameGetter.call(value)!==name)throw makeException(TypeError,`is not ${article} ${name}\
 object`,options);if(!options.allowShared&&isSharedArrayBuffer(value.buffer))throw makeException(TypeError,"is a view on\
 a SharedArrayBuffer, which is not allowed",options);if(isArrayBufferDetached(value.buffer))throw makeException(TypeError,
"is a view on a detached ArrayBuffer",options);return value}});exports.ArrayBufferView=(value,options={})=>{if(!ArrayBuffer.
isView(value))throw makeException(TypeError,"is not a view on an ArrayBuffer or SharedArrayBuffer",options);if(!options.
allowShared&&isSharedArrayBuffer(value.buffer))throw makeException(TypeError,"is a view on a SharedArrayBuffer, which is\
 not allowed",options);if(isArrayBufferDetached(value.buffer))throw makeException(TypeError,"is a view on a detached Arr\
ayBuffer",options);return value};exports.BufferSource=(value,options={})=>{if(ArrayBuffer.isView(value)){if(!options.allowShared&&
isSharedArrayBuffer(value.buffer))throw makeException(TypeError,"is a view on a SharedArrayBuffer, which is not allowed",
options);if(isArrayBufferDetached(value.buffer))throw makeException(TypeError,"is a view on a detached ArrayBuffer",options);
return value}if(!options.allowShared&&!isNonSharedArrayBuffer(value))throw makeException(TypeError,"is not an ArrayBuffe\
r or a view on one",options);if(options.allowShared&&!isSharedArrayBuffer(value)&&!isNonSharedArrayBuffer(value))throw makeException(
TypeError,"is not an ArrayBuffer, SharedArrayBuffer, or a view on one",options);if(isArrayBufferDetached(value))throw makeException(
TypeError,"is a detached ArrayBuffer",options);return value};exports.DOMTimeStamp=exports["unsigned long long"]}});var require_utils=__commonJS({"node_modules/whatwg-url/lib/utils.js"(exports,module){"use strict";function isObject(value){
return typeof value=="object"&&value!==null||typeof value=="function"}var hasOwn=Function.prototype.call.bind(Object.prototype.
hasOwnProperty);function define2(target,source){for(let key of Reflect.ownKeys(source)){let descriptor=Reflect.getOwnPropertyDescriptor(
source,key);if(descriptor&&!Reflect.defineProperty(target,key,descriptor))throw new TypeError(`Cannot redefine property:\
 ${String(key)}`)}}function newObjectInRealm(globalObject,object){let ctorRegistry=initCtorRegistry(globalObject);return Object.
defineProperties(Object.create(ctorRegistry["%Object.prototype%"]),Object.getOwnPropertyDescriptors(object))}var wrapperSymbol=Symbol(
"wrapper"),implSymbol=Symbol("impl"),sameObjectCaches=Symbol("SameObject caches"),ctorRegistrySymbol=Symbol.for("[webidl\
2js] constructor registry"),AsyncIteratorPrototype=Object.getPrototypeOf(Object.getPrototypeOf(async function*(){}).prototype);
function initCtorRegistry(globalObject){if(hasOwn(globalObject,ctorRegistrySymbol))return globalObject[ctorRegistrySymbol];
let ctorRegistry=Object.create(null);ctorRegistry["%Object.prototype%"]=globalObject.Object.prototype,ctorRegistry["%Ite\
ratorPrototype%"]=Object.getPrototypeOf(Object.getPrototypeOf(new globalObject.Array()[Symbol.iterator]()));try{ctorRegistry["\
%AsyncIteratorPrototype%"]=Object.getPrototypeOf(Object.getPrototypeOf(globalObject.eval("(async function* () {})").prototype))}catch{
ctorRegistry["%AsyncIteratorPrototype%"]=AsyncIteratorPrototype}return globalObject[ctorRegistrySymbol]=ctorRegistry,ctorRegistry}
function getSameObject(wrapper,prop,creator){return wrapper[sameObjectCaches]||(wrapper[sameObjectCaches]=Object.create(
null)),prop in wrapper[sameObjectCaches]||(wrapper[sameObjectCaches][prop]=creator()),wrapper[sameObjectCaches][prop]}function wrapperForImpl(impl){
return impl?impl[wrapperSymbol]:null}function implForWrapper(wrapper){return wrapper?wrapper[implSymbol]:null}function tryWrapperForImpl(impl){
let wrapper=wrapperForImpl(impl);return wrapper||impl}function tryImplForWrapper(wrapper){let impl=implForWrapper(wrapper);
return impl||wrapper}var iterInternalSymbol=Symbol("internal");function isArrayIndexPropName(P){if(typeof P!="string")return!1;
let i=P>>>0;if(i===2**32-1)return!1;let s=`${i}`;return P===s}var byteLengthGetter=Object.getOwnPropertyDescriptor(ArrayBuffer.
prototype,"byteLength").get;function isArrayBuffer(value){try{return byteLengthGetter.call(value),!0}catch{return!1}}function iteratorResult([
key,value],kind){let result;switch(kind){case"key":result=key;break;case"value":result=value;break;case"key+value":result=
[key,value];break}return{value:result,done:!1}}var supportsPropertyIndex=Symbol("supports property index"),supportedPropertyIndices=Symbol(
"supported property indices"),supportsPropertyName=Symbol("supports property name"),supportedPropertyNames=Symbol("suppo\
rted property names"),indexedGet=Symbol("indexed property get"),indexedSetNew=Symbol("indexed property set new"),indexedSetExisting=Symbol(
"indexed property set existing"),namedGet=Symbol("named property get"),namedSetNew=Symbol("named property set new"),namedSetExisting=Symbol(
"named property set existing"),namedDelete=Symbol("named property delete"),asyncIteratorNext=Symbol("async iterator get \
the next iteration result"),asyncIteratorReturn=Symbol("async iterator return steps"),asyncIteratorInit=Symbol("async it\
erator initialization steps"),asyncIteratorEOI=Symbol("async iterator end of iteration");module.exports=exports={isObject,
hasOwn,define:define2,newObjectInRealm,wrapperSymbol,implSymbol,getSameObject,ctorRegistrySymbol,initCtorRegistry,wrapperForImpl,
implForWrapper,tryWrapperForImpl,tryImplForWrapper,iterInternalSymbol,isArrayBuffer,isArrayIndexPropName,supportsPropertyIndex,
supportedPropertyIndices,supportsPropertyName,supportedPropertyNames,indexedGet,indexedSetNew,indexedSetExisting,namedGet,
namedSetNew,namedSetExisting,namedDelete,asyncIteratorNext,asyncIteratorReturn,asyncIteratorInit,asyncIteratorEOI,iteratorResult}}});function error(type){throw new RangeError(errors[type])}function ucs2decode(string){let output=[],counter=0,length=string.
length;for(;counter<length;){let value=string.charCodeAt(counter++);if(value>=55296&&value<=56319&&counter<length){let extra=string.
charCodeAt(counter++);(extra&64512)==56320?output.push(((value&1023)<<10)+(extra&1023)+65536):(output.push(value),counter--)}else
output.push(value)}return output}var errors,baseMinusTMin,floor,stringFromCharCode,basicToDigit,digitToBasic,adapt,decode,
encode,init_punycode_es6=__esm({"node_modules/punycode/punycode.es6.js"(){"use strict";errors={overflow:"Overflow: input\
 needs wider integers to process","not-basic":"Illegal input >= 0x80 (not a basic code point)","invalid-input":"Invalid \
input"},baseMinusTMin=35,floor=Math.floor,stringFromCharCode=String.fromCharCode;basicToDigit=function(codePoint){return codePoint>=
48&&codePoint<58?26+(codePoint-48):codePoint>=65&&codePoint<91?codePoint-65:codePoint>=97&&codePoint<123?codePoint-97:36},
digitToBasic=function(digit,flag){return digit+22+75*(digit<26)-((flag!=0)<<5)},adapt=function(delta,numPoints,firstTime){
let k=0;for(delta=firstTime?floor(delta/700):delta>>1,delta+=floor(delta/numPoints);delta>baseMinusTMin*26>>1;k+=36)delta=
floor(delta/baseMinusTMin);return floor(k+(baseMinusTMin+1)*delta/(delta+38))},decode=function(input){let output=[],inputLength=input.
length,i=0,n=128,bias=72,basic=input.lastIndexOf("-");basic<0&&(basic=0);for(let j=0;j<basic;++j)input.charCodeAt(j)>=128&&
error("not-basic"),output.push(input.charCodeAt(j));for(let index=basic>0?basic+1:0;index<inputLength;){let oldi=i;for(let w=1,
k=36;;k+=36){index>=inputLength&&error("invalid-input");let digit=basicToDigit(input.charCodeAt(index++));digit>=36&&error(
"invalid-input"),digit>floor((2147483647-i)/w)&&error("overflow"),i+=digit*w;let t=k<=bias?1:k>=bias+26?26:k-bias;if(digit<
t)break;let baseMinusT=36-t;w>floor(2147483647/baseMinusT)&&error("overflow"),w*=baseMinusT}let out=output.length+1;bias=
adapt(i-oldi,out,oldi==0),floor(i/out)>2147483647-n&&error("overflow"),n+=floor(i/out),i%=out,output.splice(i++,0,n)}return String.
fromCodePoint(...output)},encode=function(input){let output=[];input=ucs2decode(input);let inputLength=input.length,n=128,
delta=0,bias=72;for(let currentValue of input)currentValue<128&&output.push(stringFromCharCode(currentValue));let basicLength=output.
length,handledCPCount=basicLength;for(basicLength&&output.push("-");handledCPCount<inputLength;){let m=2147483647;for(let currentValue of input)
currentValue>=n&&currentValue<m&&(m=currentValue);let handledCPCountPlusOne=handledCPCount+1;m-n>floor((2147483647-delta)/
handledCPCountPlusOne)&&error("overflow"),delta+=(m-n)*handledCPCountPlusOne,n=m;for(let currentValue of input)if(currentValue<
n&&++delta>2147483647&&error("overflow"),currentValue===n){let q=delta;for(let k=36;;k+=36){let t=k<=bias?1:k>=bias+26?26:
k-bias;if(q<t)break;let qMinusT=q-t,baseMinusT=36-t;output.push(stringFromCharCode(digitToBasic(t+qMinusT%baseMinusT,0))),
q=floor(qMinusT/baseMinusT)}output.push(stringFromCharCode(digitToBasic(q,0))),bias=adapt(delta,handledCPCountPlusOne,handledCPCount===
basicLength),delta=0,++handledCPCount}++delta,++n}return output.join("")}}});var idna_exports={};__export(idna_exports,{toASCII:()=>toASCII,toUnicode:()=>toUnicode});function toUnicode(domain){let error2=!1,
decoded=Array.from(domain,point=>point.toLowerCase()).join("").replace(IGNORED,"").normalize("NFKC").toLowerCase().normalize(
"NFC").replaceAll("\u3002",".").split(".").map(label=>{if(!label.startsWith("xn--"))return label;try{let text=decode(label.
slice(4));return error2||=text===""||ASCII.test(text)||text!==text.normalize("NFC")||text!==text.toLowerCase(),text}catch{
return error2=!0,label}});return error2||=decoded.some(label=>!ASCII.test(label)&&(REFUSED.test(label.replace(/[\u200c\u200d]/g,
""))||/^\p{M}/u.test(label))),{domain:decoded.join("."),error:error2}}function toASCII(given){let{domain,error:error2}=toUnicode(
given);return error2?null:domain.split(".").map(label=>ASCII.test(label)?label:`xn--${encode(label)}`).join(".")}var ASCII,
IGNORED,REFUSED,init_idna=__esm({"globals/idna.js"(){init_punycode_es6();ASCII=/^[\0-\x7f]*$/,IGNORED=/[\u00ad\u034f\u180b-\u180f\u200b\u2060\u2064\ufe00-\ufe0f\ufeff]/g,
REFUSED=/[\p{C}\p{Z}\ufffd]/u}});var require_infra=__commonJS({"node_modules/whatwg-url/lib/infra.js"(exports,module){"use strict";function isASCIIDigit(c){
return c>=48&&c<=57}function isASCIIAlpha(c){return c>=65&&c<=90||c>=97&&c<=122}function isASCIIAlphanumeric(c){return isASCIIAlpha(
c)||isASCIIDigit(c)}function isASCIIHex(c){return isASCIIDigit(c)||c>=65&&c<=70||c>=97&&c<=102}module.exports={isASCIIDigit,
isASCIIAlpha,isASCIIAlphanumeric,isASCIIHex}}});var require_encoding=__commonJS({"node_modules/whatwg-url/lib/encoding.js"(exports,module){"use strict";var utf8Encoder=new TextEncoder,
utf8Decoder=new TextDecoder("utf-8",{ignoreBOM:!0});function utf8Encode(string){return utf8Encoder.encode(string)}function utf8DecodeWithoutBOM(bytes){
return utf8Decoder.decode(bytes)}module.exports={utf8Encode,utf8DecodeWithoutBOM}}});var require_percent_encoding=__commonJS({"node_modules/whatwg-url/lib/percent-encoding.js"(exports,module){"use strict";
var{isASCIIHex}=require_infra(),{utf8Encode}=require_encoding();function p(char){return char.codePointAt(0)}function percentEncode(c){
let hex=c.toString(16).toUpperCase();return hex.length===1&&(hex=`0${hex}`),`%${hex}`}function percentDecodeBytes(input){
let output=new Uint8Array(input.byteLength),outputIndex=0;for(let i=0;i<input.byteLength;++i){let byte=input[i];if(byte!==
37)output[outputIndex++]=byte;else if(byte===37&&(!isASCIIHex(input[i+1])||!isASCIIHex(input[i+2])))output[outputIndex++]=
byte;else{let bytePoint=parseInt(String.fromCodePoint(input[i+1],input[i+2]),16);output[outputIndex++]=bytePoint,i+=2}}return output.
slice(0,outputIndex)}function percentDecodeString(input){let bytes=utf8Encode(input);return percentDecodeBytes(bytes)}function isC0ControlPercentEncode(c){
return c<=31||c>126}var extraFragmentPercentEncodeSet=new Set([p(" "),p('"'),p("<"),p(">"),p("`")]);function isFragmentPercentEncode(c){
return isC0ControlPercentEncode(c)||extraFragmentPercentEncodeSet.has(c)}var extraQueryPercentEncodeSet=new Set([p(" "),
p('"'),p("#"),p("<"),p(">")]);function isQueryPercentEncode(c){return isC0ControlPercentEncode(c)||extraQueryPercentEncodeSet.
has(c)}function isSpecialQueryPercentEncode(c){return isQueryPercentEncode(c)||c===p("'")}var extraPathPercentEncodeSet=new Set(
[p("?"),p("`"),p("{"),p("}"),p("^")]);function isPathPercentEncode(c){return isQueryPercentEncode(c)||extraPathPercentEncodeSet.
has(c)}var extraUserinfoPercentEncodeSet=new Set([p("/"),p(":"),p(";"),p("="),p("@"),p("["),p("\\"),p("]"),p("|")]);function isUserinfoPercentEncode(c){
return isPathPercentEncode(c)||extraUserinfoPercentEncodeSet.has(c)}var extraComponentPercentEncodeSet=new Set([p("$"),p(
"%"),p("&"),p("+"),p(",")]);function isComponentPercentEncode(c){return isUserinfoPercentEncode(c)||extraComponentPercentEncodeSet.
has(c)}var extraURLEncodedPercentEncodeSet=new Set([p("!"),p("'"),p("("),p(")"),p("~")]);function isURLEncodedPercentEncode(c){
return isComponentPercentEncode(c)||extraURLEncodedPercentEncodeSet.has(c)}function utf8PercentEncodeCodePointInternal(codePoint,percentEncodePredicate){
let bytes=utf8Encode(codePoint),output="";for(let byte of bytes)percentEncodePredicate(byte)?output+=percentEncode(byte):
output+=String.fromCharCode(byte);return output}function utf8PercentEncodeCodePoint(codePoint,percentEncodePredicate){return utf8PercentEncodeCodePointInternal(
String.fromCodePoint(codePoint),percentEncodePredicate)}function utf8PercentEncodeString(input,percentEncodePredicate,spaceAsPlus=!1){
let output="";for(let codePoint of input)spaceAsPlus&&codePoint===" "?output+="+":output+=utf8PercentEncodeCodePointInternal(
codePoint,percentEncodePredicate);return output}module.exports={isC0ControlPercentEncode,isFragmentPercentEncode,isQueryPercentEncode,
isSpecialQueryPercentEncode,isPathPercentEncode,isUserinfoPercentEncode,isURLEncodedPercentEncode,percentDecodeString,percentDecodeBytes,
utf8PercentEncodeString,utf8PercentEncodeCodePoint}}});var require_url_state_machine=__commonJS({"node_modules/whatwg-url/lib/url-state-machine.js"(exports,module){"use strict";
var tr46=(init_idna(),__toCommonJS(idna_exports)),infra=require_infra(),{utf8DecodeWithoutBOM}=require_encoding(),{percentDecodeString,
utf8PercentEncodeCodePoint,utf8PercentEncodeString,isC0ControlPercentEncode,isFragmentPercentEncode,isQueryPercentEncode,
isSpecialQueryPercentEncode,isPathPercentEncode,isUserinfoPercentEncode}=require_percent_encoding();function p(char){return char.
codePointAt(0)}var specialSchemes={ftp:21,file:null,http:80,https:443,ws:80,wss:443},failure=Symbol("failure");function countSymbols(str){
return[...str].length}function at(input,idx){let c=input[idx];return isNaN(c)?void 0:String.fromCodePoint(c)}function isSingleDot(buffer){
return buffer==="."||buffer.toLowerCase()==="%2e"}function isDoubleDot(buffer){return buffer=buffer.toLowerCase(),buffer===
".."||buffer==="%2e."||buffer===".%2e"||buffer==="%2e%2e"}function isWindowsDriveLetterCodePoints(cp1,cp2){return infra.
isASCIIAlpha(cp1)&&(cp2===p(":")||cp2===p("|"))}function isWindowsDriveLetterString(string){return string.length===2&&infra.
isASCIIAlpha(string.codePointAt(0))&&(string[1]===":"||string[1]==="|")}function isNormalizedWindowsDriveLetterString(string){
return string.length===2&&infra.isASCIIAlpha(string.codePointAt(0))&&string[1]===":"}function containsForbiddenHostCodePoint(string){
return string.search(/\u0000|\u0009|\u000A|\u000D|\u0020|#|\/|:|<|>|\?|@|\[|\\|\]|\^|\|/u)!==-1}function containsForbiddenDomainCodePoint(string){
return containsForbiddenHostCodePoint(string)||string.search(/[\u0000-\u001F]|%|\u007F/u)!==-1}function isSpecialScheme(scheme){
return specialSchemes[scheme]!==void 0}function isSpecial(url){return isSpecialScheme(url.scheme)}function isNotSpecial(url){
return!isSpecialScheme(url.scheme)}function defaultPort(scheme){return specialSchemes[scheme]}function parseIPv4Number(input){
if(input==="")return failure;let R=10;if(input.length>=2&&input.charAt(0)==="0"&&input.charAt(1).toLowerCase()==="x"?(input=
input.substring(2),R=16):input.length>=2&&input.charAt(0)==="0"&&(input=input.substring(1),R=8),input==="")return 0;let regex=/[^0-7]/u;
return R===10&&(regex=/[^0-9]/u),R===16&&(regex=/[^0-9A-Fa-f]/u),regex.test(input)?failure:parseInt(input,R)}function parseIPv4(input){
let parts=input.split(".");if(parts[parts.length-1]===""&&parts.length>1&&parts.pop(),parts.length>4)return failure;let numbers=[];
for(let part of parts){let n=parseIPv4Number(part);if(n===failure)return failure;numbers.push(n)}for(let i=0;i<numbers.length-
1;++i)if(numbers[i]>255)return failure;if(numbers[numbers.length-1]>=256**(5-numbers.length))return failure;let ipv4=numbers.
pop(),counter=0;for(let n of numbers)ipv4+=n*256**(3-counter),++counter;return ipv4}function serializeIPv4(address){let output="",
n=address;for(let i=1;i<=4;++i)output=String(n%256)+output,i!==4&&(output=`.${output}`),n=Math.floor(n/256);return output}
function parseIPv6(input){let address=[0,0,0,0,0,0,0,0],pieceIndex=0,compress=null,pointer=0;if(input=Array.from(input,c=>c.
codePointAt(0)),input[pointer]===p(":")){if(input[pointer+1]!==p(":"))return failure;pointer+=2,++pieceIndex,compress=pieceIndex}
for(;pointer<input.length;){if(pieceIndex===8)return failure;if(input[pointer]===p(":")){if(compress!==null)return failure;
++pointer,++pieceIndex,compress=pieceIndex;continue}let value=0,length=0;for(;length<4&&infra.isASCIIHex(input[pointer]);)
value=value*16+parseInt(at(input,pointer),16),++pointer,++length;if(input[pointer]===p(".")){if(length===0||(pointer-=length,
pieceIndex>6))return failure;let numbersSeen=0;for(;input[pointer]!==void 0;){let ipv4Piece=null;if(numbersSeen>0)if(input[pointer]===
p(".")&&numbersSeen<4)++pointer;else return failure;if(!infra.isASCIIDigit(input[pointer]))return failure;for(;infra.isASCIIDigit(
input[pointer]);){let number=parseInt(at(input,pointer));if(ipv4Piece===null)ipv4Piece=number;else{if(ipv4Piece===0)return failure;
ipv4Piece=ipv4Piece*10+number}if(ipv4Piece>255)return failure;++pointer}address[pieceIndex]=address[pieceIndex]*256+ipv4Piece,
++numbersSeen,(numbersSeen===2||numbersSeen===4)&&++pieceIndex}if(numbersSeen!==4)return failure;break}else if(input[pointer]===
p(":")){if(++pointer,input[pointer]===void 0)return failure}else if(input[pointer]!==void 0)return failure;address[pieceIndex]=
value,++pieceIndex}if(compress!==null){let swaps=pieceIndex-compress;for(pieceIndex=7;pieceIndex!==0&&swaps>0;){let temp=address[compress+
swaps-1];address[compress+swaps-1]=address[pieceIndex],address[pieceIndex]=temp,--pieceIndex,--swaps}}else if(compress===
null&&pieceIndex!==8)return failure;return address}function serializeIPv6(address){let output="",compress=findTheIPv6AddressCompressedPieceIndex(
address),ignore0=!1;for(let pieceIndex=0;pieceIndex<=7;++pieceIndex)if(!(ignore0&&address[pieceIndex]===0)){if(ignore0&&
(ignore0=!1),compress===pieceIndex){output+=pieceIndex===0?"::":":",ignore0=!0;continue}output+=address[pieceIndex].toString(
16),pieceIndex!==7&&(output+=":")}return output}function parseHost(input,isOpaque=!1){if(input[0]==="[")return input[input.
length-1]!=="]"?failure:parseIPv6(input.substring(1,input.length-1));if(isOpaque)return parseOpaqueHost(input);let domain=utf8DecodeWithoutBOM(
percentDecodeString(input)),asciiDomain=domainToASCII(domain);return asciiDomain===failure?failure:endsInANumber(asciiDomain)?
parseIPv4(asciiDomain):asciiDomain}function endsInANumber(input){let parts=input.split(".");if(parts[parts.length-1]===""){
if(parts.length===1)return!1;parts.pop()}let last=parts[parts.length-1];return!!(parseIPv4Number(last)!==failure||/^[0-9]+$/u.
test(last))}function parseOpaqueHost(input){return containsForbiddenHostCodePoint(input)?failure:utf8PercentEncodeString(
input,isC0ControlPercentEncode)}function findTheIPv6AddressCompressedPieceIndex(address){let longestIndex=null,longestSize=1,
foundIndex=null,foundSize=0;for(let pieceIndex=0;pieceIndex<address.length;++pieceIndex)address[pieceIndex]!==0?(foundSize>
longestSize&&(longestIndex=foundIndex,longestSize=foundSize),foundIndex=null,foundSize=0):(foundIndex===null&&(foundIndex=
pieceIndex),++foundSize);return foundSize>longestSize?foundIndex:longestIndex}function serializeHost(host2){return typeof host2==
"number"?serializeIPv4(host2):host2 instanceof Array?`[${serializeIPv6(host2)}]`:host2}function domainToASCII(domain,beStrict=!1){
let result=tr46.toASCII(domain,{checkHyphens:beStrict,checkBidi:!0,checkJoiners:!0,useSTD3ASCIIRules:beStrict,transitionalProcessing:!1,
verifyDNSLength:beStrict,ignoreInvalidPunycode:!1});return result===null||!beStrict&&(result===""||containsForbiddenDomainCodePoint(
result))?failure:result}function trimControlChars(string){let start=0,end=string.length;for(;start<end&&!(string.charCodeAt(
start)>32);++start);for(;end>start&&!(string.charCodeAt(end-1)>32);--end);return string.substring(start,end)}function trimTabAndNewline(url){
return url.replace(/\u0009|\u000A|\u000D/ug,"")}function shortenPath(url){let{path}=url;path.length!==0&&(url.scheme==="\
file"&&path.length===1&&isNormalizedWindowsDriveLetter(path[0])||path.pop())}function includesCredentials(url){return url.
username!==""||url.password!==""}function cannotHaveAUsernamePasswordPort(url){return url.host===null||url.host===""||url.
scheme==="file"}function hasAnOpaquePath(url){return typeof url.path=="string"}function isNormalizedWindowsDriveLetter(string){
return/^[A-Za-z]:$/u.test(string)}function URLStateMachine(input,base,encodingOverride,url,stateOverride){if(this.pointer=
0,this.input=input,this.base=base||null,this.encodingOverride=encodingOverride||"utf-8",this.stateOverride=stateOverride,
this.url=url,this.failure=!1,this.parseError=!1,!this.url){this.url={scheme:"",username:"",password:"",host:null,port:null,
path:[],query:null,fragment:null};let res2=trimControlChars(this.input);res2!==this.input&&(this.parseError=!0),this.input=
res2}let res=trimTabAndNewline(this.input);for(res!==this.input&&(this.parseError=!0),this.input=res,this.state=stateOverride||
"scheme start",this.buffer="",this.atFlag=!1,this.arrFlag=!1,this.passwordTokenSeenFlag=!1,this.input=Array.from(this.input,
c=>c.codePointAt(0));this.pointer<=this.input.length;++this.pointer){let c=this.input[this.pointer],cStr=isNaN(c)?void 0:
String.fromCodePoint(c),ret=this[`parse ${this.state}`](c,cStr);if(ret){if(ret===failure){this.failure=!0;break}}else break}}
URLStateMachine.prototype["parse scheme start"]=function(c,cStr){if(infra.isASCIIAlpha(c))this.buffer+=cStr.toLowerCase(),
this.state="scheme";else if(!this.stateOverride)this.state="no scheme",--this.pointer;else return this.parseError=!0,failure;
return!0};URLStateMachine.prototype["parse scheme"]=function(c,cStr){if(infra.isASCIIAlphanumeric(c)||c===p("+")||c===p(
"-")||c===p("."))this.buffer+=cStr.toLowerCase();else if(c===p(":")){if(this.stateOverride&&(isSpecial(this.url)&&!isSpecialScheme(
this.buffer)||!isSpecial(this.url)&&isSpecialScheme(this.buffer)||(includesCredentials(this.url)||this.url.port!==null)&&
this.buffer==="file"||this.url.scheme==="file"&&this.url.host===""))return!1;if(this.url.scheme=this.buffer,this.stateOverride)
return this.url.port===defaultPort(this.url.scheme)&&(this.url.port=null),!1;this.buffer="",this.url.scheme==="file"?((this.
input[this.pointer+1]!==p("/")||this.input[this.pointer+2]!==p("/"))&&(this.parseError=!0),this.state="file"):isSpecial(
this.url)&&this.base!==null&&this.base.scheme===this.url.scheme?this.state="special relative or authority":isSpecial(this.
url)?this.state="special authority slashes":this.input[this.pointer+1]===p("/")?(this.state="path or authority",++this.pointer):
(this.url.path="",this.state="opaque path")}else if(!this.stateOverride)this.buffer="",this.state="no scheme",this.pointer=
-1;else return this.parseError=!0,failure;return!0};URLStateMachine.prototype["parse no scheme"]=function(c){return this.
base===null||hasAnOpaquePath(this.base)&&c!==p("#")?failure:(hasAnOpaquePath(this.base)&&c===p("#")?(this.url.scheme=this.
base.scheme,this.url.path=this.base.path,this.url.query=this.base.query,this.url.fragment="",this.state="fragment"):this.
base.scheme==="file"?(this.state="file",--this.pointer):(this.state="relative",--this.pointer),!0)};URLStateMachine.prototype["\
parse special relative or authority"]=function(c){return c===p("/")&&this.input[this.pointer+1]===p("/")?(this.state="sp\
ecial authority ignore slashes",++this.pointer):(this.parseError=!0,this.state="relative",--this.pointer),!0};URLStateMachine.
prototype["parse path or authority"]=function(c){return c===p("/")?this.state="authority":(this.state="path",--this.pointer),
!0};URLStateMachine.prototype["parse relative"]=function(c){return this.url.scheme=this.base.scheme,c===p("/")?this.state=
"relative slash":isSpecial(this.url)&&c===p("\\")?(this.parseError=!0,this.state="relative slash"):(this.url.username=this.
base.username,this.url.password=this.base.password,this.url.host=this.base.host,this.url.port=this.base.port,this.url.path=
this.base.path.slice(),this.url.query=this.base.query,c===p("?")?(this.url.query="",this.state="query"):c===p("#")?(this.
url.fragment="",this.state="fragment"):isNaN(c)||(this.url.query=null,this.url.path.pop(),this.state="path",--this.pointer)),
!0};URLStateMachine.prototype["parse relative slash"]=function(c){return isSpecial(this.url)&&(c===p("/")||c===p("\\"))?
(c===p("\\")&&(this.parseError=!0),this.state="special authority ignore slashes"):c===p("/")?this.state="authority":(this.
url.username=this.base.username,this.url.password=this.base.password,this.url.host=this.base.host,this.url.port=this.base.
port,this.state="path",--this.pointer),!0};URLStateMachine.prototype["parse special authority slashes"]=function(c){return c===
p("/")&&this.input[this.pointer+1]===p("/")?(this.state="special authority ignore slashes",++this.pointer):(this.parseError=
!0,this.state="special authority ignore slashes",--this.pointer),!0};URLStateMachine.prototype["parse special authority \
ignore slashes"]=function(c){return c!==p("/")&&c!==p("\\")?(this.state="authority",--this.pointer):this.parseError=!0,!0};
URLStateMachine.prototype["parse authority"]=function(c,cStr){if(c===p("@")){this.parseError=!0,this.atFlag&&(this.buffer=
`%40${this.buffer}`),this.atFlag=!0;let len=countSymbols(this.buffer);for(let pointer=0;pointer<len;++pointer){let codePoint=this.
buffer.codePointAt(pointer);if(codePoint===p(":")&&!this.passwordTokenSeenFlag){this.passwordTokenSeenFlag=!0;continue}let encodedCodePoints=utf8PercentEncodeCodePoint(
codePoint,isUserinfoPercentEncode);this.passwordTokenSeenFlag?this.url.password+=encodedCodePoints:this.url.username+=encodedCodePoints}
this.buffer=""}else if(isNaN(c)||c===p("/")||c===p("?")||c===p("#")||isSpecial(this.url)&&c===p("\\")){if(this.atFlag&&this.
buffer==="")return this.parseError=!0,failure;this.pointer-=countSymbols(this.buffer)+1,this.buffer="",this.state="host"}else
this.buffer+=cStr;return!0};URLStateMachine.prototype["parse hostname"]=URLStateMachine.prototype["parse host"]=function(c,cStr){
if(this.stateOverride&&this.url.scheme==="file")--this.pointer,this.state="file host";else if(c===p(":")&&!this.arrFlag){
if(this.buffer==="")return this.parseError=!0,failure;if(this.stateOverride==="hostname")return!1;let host2=parseHost(this.
buffer,isNotSpecial(this.url));if(host2===failure)return failure;this.url.host=host2,this.buffer="",this.state="port"}else if(isNaN(
c)||c===p("/")||c===p("?")||c===p("#")||isSpecial(this.url)&&c===p("\\")){if(--this.pointer,isSpecial(this.url)&&this.buffer===
"")return this.parseError=!0,failure;if(this.stateOverride&&this.buffer===""&&(includesCredentials(this.url)||this.url.port!==
null))return this.parseError=!0,!1;let host2=parseHost(this.buffer,isNotSpecial(this.url));if(host2===failure)return failure;
if(this.url.host=host2,this.buffer="",this.state="path start",this.stateOverride)return!1}else c===p("[")?this.arrFlag=!0:
c===p("]")&&(this.arrFlag=!1),this.buffer+=cStr;return!0};URLStateMachine.prototype["parse port"]=function(c,cStr){if(infra.
isASCIIDigit(c))this.buffer+=cStr;else if(isNaN(c)||c===p("/")||c===p("?")||c===p("#")||isSpecial(this.url)&&c===p("\\")||
this.stateOverride){if(this.buffer!==""){let port=parseInt(this.buffer);if(port>2**16-1)return this.parseError=!0,failure;
this.url.port=port===defaultPort(this.url.scheme)?null:port,this.buffer=""}if(this.stateOverride)return!1;this.state="pa\
th start",--this.pointer}else return this.parseError=!0,failure;return!0};var fileOtherwiseCodePoints=new Set([p("/"),p(
"\\"),p("?"),p("#")]);function startsWithWindowsDriveLetter(input,pointer){let length=input.length-pointer;return length>=
2&&isWindowsDriveLetterCodePoints(input[pointer],input[pointer+1])&&(length===2||fileOtherwiseCodePoints.has(input[pointer+
2]))}URLStateMachine.prototype["parse file"]=function(c){return this.url.scheme="file",this.url.host="",c===p("/")||c===
p("\\")?(c===p("\\")&&(this.parseError=!0),this.state="file slash"):this.base!==null&&this.base.scheme==="file"?(this.url.
host=this.base.host,this.url.path=this.base.path.slice(),this.url.query=this.base.query,c===p("?")?(this.url.query="",this.
state="query"):c===p("#")?(this.url.fragment="",this.state="fragment"):isNaN(c)||(this.url.query=null,startsWithWindowsDriveLetter(
this.input,this.pointer)?(this.parseError=!0,this.url.path=[]):shortenPath(this.url),this.state="path",--this.pointer)):
(this.state="path",--this.pointer),!0};URLStateMachine.prototype["parse file slash"]=function(c){return c===p("/")||c===
p("\\")?(c===p("\\")&&(this.parseError=!0),this.state="file host"):(this.base!==null&&this.base.scheme==="file"&&(!startsWithWindowsDriveLetter(
this.input,this.pointer)&&isNormalizedWindowsDriveLetterString(this.base.path[0])&&this.url.path.push(this.base.path[0]),
this.url.host=this.base.host),this.state="path",--this.pointer),!0};URLStateMachine.prototype["parse file host"]=function(c,cStr){
if(isNaN(c)||c===p("/")||c===p("\\")||c===p("?")||c===p("#"))if(--this.pointer,!this.stateOverride&&isWindowsDriveLetterString(
this.buffer))this.parseError=!0,this.state="path";else if(this.buffer===""){if(this.url.host="",this.stateOverride)return!1;
this.state="path start"}else{let host2=parseHost(this.buffer,isNotSpecial(this.url));if(host2===failure)return failure;if(host2===
"localhost"&&(host2=""),this.url.host=host2,this.stateOverride)return!1;this.buffer="",this.state="path start"}else this.
buffer+=cStr;return!0};URLStateMachine.prototype["parse path start"]=function(c){return isSpecial(this.url)?(c===p("\\")&&
(this.parseError=!0),this.state="path",c!==p("/")&&c!==p("\\")&&--this.pointer):!this.stateOverride&&c===p("?")?(this.url.
query="",this.state="query"):!this.stateOverride&&c===p("#")?(this.url.fragment="",this.state="fragment"):c!==void 0?(this.
state="path",c!==p("/")&&--this.pointer):this.stateOverride&&this.url.host===null&&this.url.path.push(""),!0};URLStateMachine.
prototype["parse path"]=function(c){return isNaN(c)||c===p("/")||isSpecial(this.url)&&c===p("\\")||!this.stateOverride&&
(c===p("?")||c===p("#"))?(isSpecial(this.url)&&c===p("\\")&&(this.parseError=!0),isDoubleDot(this.buffer)?(shortenPath(this.
url),c!==p("/")&&!(isSpecial(this.url)&&c===p("\\"))&&this.url.path.push("")):isSingleDot(this.buffer)&&c!==p("/")&&!(isSpecial(
this.url)&&c===p("\\"))?this.url.path.push(""):isSingleDot(this.buffer)||(this.url.scheme==="file"&&this.url.path.length===
0&&isWindowsDriveLetterString(this.buffer)&&(this.buffer=`${this.buffer[0]}:`),this.url.path.push(this.buffer)),this.buffer=
"",c===p("?")&&(this.url.query="",this.state="query"),c===p("#")&&(this.url.fragment="",this.state="fragment")):(c===p("\
%")&&(!infra.isASCIIHex(this.input[this.pointer+1])||!infra.isASCIIHex(this.input[this.pointer+2]))&&(this.parseError=!0),
this.buffer+=utf8PercentEncodeCodePoint(c,isPathPercentEncode)),!0};URLStateMachine.prototype["parse opaque path"]=function(c){
if(c===p("?"))this.url.query="",this.state="query";else if(c===p("#"))this.url.fragment="",this.state="fragment";else if(c===
p(" ")){let remaining=this.input[this.pointer+1];remaining===p("?")||remaining===p("#")?this.url.path+="%20":this.url.path+=
" "}else!isNaN(c)&&c!==p("%")&&(this.parseError=!0),c===p("%")&&(!infra.isASCIIHex(this.input[this.pointer+1])||!infra.isASCIIHex(
this.input[this.pointer+2]))&&(this.parseError=!0),isNaN(c)||(this.url.path+=utf8PercentEncodeCodePoint(c,isC0ControlPercentEncode));
return!0};URLStateMachine.prototype["parse query"]=function(c,cStr){if((!isSpecial(this.url)||this.url.scheme==="ws"||this.
url.scheme==="wss")&&(this.encodingOverride="utf-8"),!this.stateOverride&&c===p("#")||isNaN(c)){let queryPercentEncodePredicate=isSpecial(
this.url)?isSpecialQueryPercentEncode:isQueryPercentEncode;this.url.query+=utf8PercentEncodeString(this.buffer,queryPercentEncodePredicate),
this.buffer="",c===p("#")&&(this.url.fragment="",this.state="fragment")}else isNaN(c)||(c===p("%")&&(!infra.isASCIIHex(this.
input[this.pointer+1])||!infra.isASCIIHex(this.input[this.pointer+2]))&&(this.parseError=!0),this.buffer+=cStr);return!0};
URLStateMachine.prototype["parse fragment"]=function(c){return isNaN(c)||(c===p("%")&&(!infra.isASCIIHex(this.input[this.
pointer+1])||!infra.isASCIIHex(this.input[this.pointer+2]))&&(this.parseError=!0),this.url.fragment+=utf8PercentEncodeCodePoint(
c,isFragmentPercentEncode)),!0};function serializeURL(url,excludeFragment){let output=`${url.scheme}:`;return url.host!==
null&&(output+="//",(url.username!==""||url.password!=="")&&(output+=url.username,url.password!==""&&(output+=`:${url.password}`),
output+="@"),output+=serializeHost(url.host),url.port!==null&&(output+=`:${url.port}`)),url.host===null&&!hasAnOpaquePath(
url)&&url.path.length>1&&url.path[0]===""&&(output+="/."),output+=serializePath(url),url.query!==null&&(output+=`?${url.
query}`),!excludeFragment&&url.fragment!==null&&(output+=`#${url.fragment}`),output}function serializeOrigin(tuple){let result=`${tuple.
scheme}://`;return result+=serializeHost(tuple.host),tuple.port!==null&&(result+=`:${tuple.port}`),result}function serializePath(url){
if(hasAnOpaquePath(url))return url.path;let output="";for(let segment of url.path)output+=`/${segment}`;return output}module.
exports.serializeURL=serializeURL;module.exports.serializePath=serializePath;module.exports.serializeURLOrigin=function(url){
switch(url.scheme){case"blob":{let pathURL=module.exports.parseURL(serializePath(url));return pathURL===null||pathURL.scheme!==
"http"&&pathURL.scheme!=="https"?"null":module.exports.serializeURLOrigin(pathURL)}case"ftp":case"http":case"https":case"\
ws":case"wss":return serializeOrigin({scheme:url.scheme,host:url.host,port:url.port});case"file":return"null";default:return"\
null"}};module.exports.basicURLParse=function(input,options){options===void 0&&(options={});let usm=new URLStateMachine(
input,options.baseURL,options.encodingOverride,options.url,options.stateOverride);return usm.failure?null:usm.url};module.
exports.setTheUsername=function(url,username){url.username=utf8PercentEncodeString(username,isUserinfoPercentEncode)};module.
exports.setThePassword=function(url,password){url.password=utf8PercentEncodeString(password,isUserinfoPercentEncode)};module.
exports.serializeHost=serializeHost;module.exports.cannotHaveAUsernamePasswordPort=cannotHaveAUsernamePasswordPort;module.
exports.hasAnOpaquePath=hasAnOpaquePath;module.exports.serializeInteger=function(integer){return String(integer)};module.
exports.parseURL=function(input,options){return options===void 0&&(options={}),module.exports.basicURLParse(input,{baseURL:options.
baseURL,encodingOverride:options.encodingOverride})}}});var require_urlencoded=__commonJS({"node_modules/whatwg-url/lib/urlencoded.js"(exports,module){"use strict";var{utf8Encode,
utf8DecodeWithoutBOM}=require_encoding(),{percentDecodeBytes,utf8PercentEncodeString,isURLEncodedPercentEncode}=require_percent_encoding();
function p(char){return char.codePointAt(0)}function parseUrlencoded(input){let sequences=strictlySplitByteSequence(input,
p("&")),output=[];for(let bytes of sequences){if(bytes.length===0)continue;let name,value,indexOfEqual=bytes.indexOf(p("\
="));indexOfEqual>=0?(name=bytes.slice(0,indexOfEqual),value=bytes.slice(indexOfEqual+1)):(name=bytes,value=new Uint8Array(
0)),name=replaceByteInByteSequence(name,43,32),value=replaceByteInByteSequence(value,43,32);let nameString=utf8DecodeWithoutBOM(
percentDecodeBytes(name)),valueString=utf8DecodeWithoutBOM(percentDecodeBytes(value));output.push([nameString,valueString])}
return output}function parseUrlencodedString(input){return parseUrlencoded(utf8Encode(input))}function serializeUrlencoded(tuples){
let output="";for(let[i,tuple]of tuples.entries()){let name=utf8PercentEncodeString(tuple[0],isURLEncodedPercentEncode,!0),
value=utf8PercentEncodeString(tuple[1],isURLEncodedPercentEncode,!0);i!==0&&(output+="&"),output+=`${name}=${value}`}return output}
function strictlySplitByteSequence(buf,cp){let list=[],last=0,i=buf.indexOf(cp);for(;i>=0;)list.push(buf.slice(last,i)),
last=i+1,i=buf.indexOf(cp,last);return last!==buf.length&&list.push(buf.slice(last)),list}function replaceByteInByteSequence(buf,from,to){
let i=buf.indexOf(from);for(;i>=0;)buf[i]=to,i=buf.indexOf(from,i+1);return buf}module.exports={parseUrlencodedString,serializeUrlencoded}}});var require_Function=__commonJS({"node_modules/whatwg-url/lib/Function.js"(exports){"use strict";var conversions=require_lib(),
utils=require_utils();exports.convert=(globalObject,value,{context="The provided value"}={})=>{if(typeof value!="functio\
n")throw new globalObject.TypeError(context+" is not a function");function invokeTheCallbackFunction(...args){let thisArg=utils.
tryWrapperForImpl(this),callResult;for(let i=0;i<args.length;i++)args[i]=utils.tryWrapperForImpl(args[i]);return callResult=
Reflect.apply(value,thisArg,args),callResult=conversions.any(callResult,{context,globals:globalObject}),callResult}return invokeTheCallbackFunction.
construct=(...args)=>{for(let i=0;i<args.length;i++)args[i]=utils.tryWrapperForImpl(args[i]);let callResult=Reflect.construct(
value,args);return callResult=conversions.any(callResult,{context,globals:globalObject}),callResult},invokeTheCallbackFunction[utils.
wrapperSymbol]=value,invokeTheCallbackFunction.objectReference=value,invokeTheCallbackFunction}}});var require_URLSearchParams_impl=__commonJS({"node_modules/whatwg-url/lib/URLSearchParams-impl.js"(exports){"use strict";
var urlencoded=require_urlencoded();exports.implementation=class{constructor(globalObject,constructorArgs,{doNotStripQMark=!1}){
let init=constructorArgs[0];if(this._list=[],this._url=null,!doNotStripQMark&&typeof init=="string"&&init[0]==="?"&&(init=
init.slice(1)),Array.isArray(init))for(let pair of init){if(pair.length!==2)throw new TypeError("Failed to construct 'UR\
LSearchParams': parameter 1 sequence's element does not contain exactly two elements.");this._list.push([pair[0],pair[1]])}else if(typeof init==
"object"&&Object.getPrototypeOf(init)===null)for(let name of Object.keys(init)){let value=init[name];this._list.push([name,
value])}else this._list=urlencoded.parseUrlencodedString(init)}_updateSteps(){if(this._url!==null){let serializedQuery=urlencoded.
serializeUrlencoded(this._list);serializedQuery===""&&(serializedQuery=null),this._url._url.query=serializedQuery}}get size(){
return this._list.length}append(name,value){this._list.push([name,value]),this._updateSteps()}delete(name,value){let i=0;
for(;i<this._list.length;)this._list[i][0]===name&&(value===void 0||this._list[i][1]===value)?this._list.splice(i,1):i++;
this._updateSteps()}get(name){for(let tuple of this._list)if(tuple[0]===name)return tuple[1];return null}getAll(name){let output=[];
for(let tuple of this._list)tuple[0]===name&&output.push(tuple[1]);return output}has(name,value){for(let tuple of this._list)
if(tuple[0]===name&&(value===void 0||tuple[1]===value))return!0;return!1}set(name,value){let found=!1,i=0;for(;i<this._list.
length;)this._list[i][0]===name?found?this._list.splice(i,1):(found=!0,this._list[i][1]=value,i++):i++;found||this._list.
push([name,value]),this._updateSteps()}sort(){this._list.sort((a,b)=>a[0]<b[0]?-1:a[0]>b[0]?1:0),this._updateSteps()}[Symbol.
iterator](){return this._list[Symbol.iterator]()}toString(){return urlencoded.serializeUrlencoded(this._list)}}}});var require_URLSearchParams=__commonJS({"node_modules/whatwg-url/lib/URLSearchParams.js"(exports){"use strict";var conversions=require_lib(),
utils=require_utils(),Function2=require_Function(),newObjectInRealm=utils.newObjectInRealm,implSymbol=utils.implSymbol,ctorRegistrySymbol=utils.
ctorRegistrySymbol,interfaceName="URLSearchParams";exports.is=value=>utils.isObject(value)&&utils.hasOwn(value,implSymbol)&&
value[implSymbol]instanceof Impl.implementation;exports.isImpl=value=>utils.isObject(value)&&value instanceof Impl.implementation;
exports.convert=(globalObject,value,{context="The provided value"}={})=>{if(exports.is(value))return utils.implForWrapper(
value);throw new globalObject.TypeError(`${context} is not of type 'URLSearchParams'.`)};exports.createDefaultIterator=(globalObject,target,kind)=>{
let iteratorPrototype=globalObject[ctorRegistrySymbol]["URLSearchParams Iterator"],iterator=Object.create(iteratorPrototype);
return Object.defineProperty(iterator,utils.iterInternalSymbol,{value:{target,kind,index:0},configurable:!0}),iterator};
function makeWrapper(globalObject,newTarget){let proto;return newTarget!==void 0&&(proto=newTarget.prototype),utils.isObject(
proto)||(proto=globalObject[ctorRegistrySymbol].URLSearchParams.prototype),Object.create(proto)}exports.create=(globalObject,constructorArgs,privateData)=>{
let wrapper=makeWrapper(globalObject);return exports.setup(wrapper,globalObject,constructorArgs,privateData)};exports.createImpl=
(globalObject,constructorArgs,privateData)=>{let wrapper=exports.create(globalObject,constructorArgs,privateData);return utils.
implForWrapper(wrapper)};exports._internalSetup=(wrapper,globalObject)=>{};exports.setup=(wrapper,globalObject,constructorArgs=[],privateData={})=>(privateData.
wrapper=wrapper,exports._internalSetup(wrapper,globalObject),Object.defineProperty(wrapper,implSymbol,{value:new Impl.implementation(
globalObject,constructorArgs,privateData),configurable:!0}),wrapper[implSymbol][utils.wrapperSymbol]=wrapper,Impl.init&&
Impl.init(wrapper[implSymbol]),wrapper);exports.new=(globalObject,newTarget)=>{let wrapper=makeWrapper(globalObject,newTarget);
return exports._internalSetup(wrapper,globalObject),Object.defineProperty(wrapper,implSymbol,{value:Object.create(Impl.implementation.
prototype),configurable:!0}),wrapper[implSymbol][utils.wrapperSymbol]=wrapper,Impl.init&&Impl.init(wrapper[implSymbol]),
wrapper[implSymbol]};var exposed=new Set(["Window","Worker"]);exports.install=(globalObject,globalNames)=>{if(!globalNames.
some(globalName=>exposed.has(globalName)))return;let ctorRegistry=utils.initCtorRegistry(globalObject);class URLSearchParams2{constructor(){
let args=[];{let curArg=arguments[0];if(curArg!==void 0)if(utils.isObject(curArg))if(curArg[Symbol.iterator]!==void 0)if(utils.
isObject(curArg)){let V=[],tmp=curArg;for(let nextItem of tmp){if(utils.isObject(nextItem)){let V2=[],tmp2=nextItem;for(let nextItem2 of tmp2)
nextItem2=conversions.USVString(nextItem2,{context:"Failed to construct 'URLSearchParams': parameter 1 sequence's elemen\
t's element",globals:globalObject}),V2.push(nextItem2);nextItem=V2}else throw new globalObject.TypeError("Failed to cons\
truct 'URLSearchParams': parameter 1 sequence's element is not an iterable object.");V.push(nextItem)}curArg=V}else throw new globalObject.
TypeError("Failed to construct 'URLSearchParams': parameter 1 sequence is not an iterable object.");else if(utils.isObject(
curArg)){let result=Object.create(null);for(let key of Reflect.ownKeys(curArg)){let desc=Object.getOwnPropertyDescriptor(
curArg,key);if(desc&&desc.enumerable){let typedKey=key;typedKey=conversions.USVString(typedKey,{context:"Failed to const\
ruct 'URLSearchParams': parameter 1 record's key",globals:globalObject});let typedValue=curArg[key];typedValue=conversions.
USVString(typedValue,{context:"Failed to construct 'URLSearchParams': parameter 1 record's value",globals:globalObject}),
result[typedKey]=typedValue}}curArg=result}else throw new globalObject.TypeError("Failed to construct 'URLSearchParams':\
 parameter 1 record is not an object.");else curArg=conversions.USVString(curArg,{context:"Failed to construct 'URLSearc\
hParams': parameter 1",globals:globalObject});else curArg="";args.push(curArg)}return exports.setup(Object.create(new.target.
prototype),globalObject,args)}append(name,value){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(
esValue))throw new globalObject.TypeError("'append' called on an object that is not a valid instance of URLSearchParams.");
if(arguments.length<2)throw new globalObject.TypeError(`Failed to execute 'append' on 'URLSearchParams': 2 arguments req\
uired, but only ${arguments.length} present.`);let args=[];{let curArg=arguments[0];curArg=conversions.USVString(curArg,
{context:"Failed to execute 'append' on 'URLSearchParams': parameter 1",globals:globalObject}),args.push(curArg)}{let curArg=arguments[1];
curArg=conversions.USVString(curArg,{context:"Failed to execute 'append' on 'URLSearchParams': parameter 2",globals:globalObject}),
args.push(curArg)}return utils.tryWrapperForImpl(esValue[implSymbol].append(...args))}delete(name){let esValue=this!==null&&
this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'delete' called on an object t\
hat is not a valid instance of URLSearchParams.");if(arguments.length<1)throw new globalObject.TypeError(`Failed to exec\
ute 'delete' on 'URLSearchParams': 1 argument required, but only ${arguments.length} present.`);let args=[];{let curArg=arguments[0];
curArg=conversions.USVString(curArg,{context:"Failed to execute 'delete' on 'URLSearchParams': parameter 1",globals:globalObject}),
args.push(curArg)}{let curArg=arguments[1];curArg!==void 0&&(curArg=conversions.USVString(curArg,{context:"Failed to exe\
cute 'delete' on 'URLSearchParams': parameter 2",globals:globalObject})),args.push(curArg)}return utils.tryWrapperForImpl(
esValue[implSymbol].delete(...args))}get(name){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))
throw new globalObject.TypeError("'get' called on an object that is not a valid instance of URLSearchParams.");if(arguments.
length<1)throw new globalObject.TypeError(`Failed to execute 'get' on 'URLSearchParams': 1 argument required, but only ${arguments.
length} present.`);let args=[];{let curArg=arguments[0];curArg=conversions.USVString(curArg,{context:"Failed to execute \
'get' on 'URLSearchParams': parameter 1",globals:globalObject}),args.push(curArg)}return esValue[implSymbol].get(...args)}getAll(name){
let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'getA\
ll' called on an object that is not a valid instance of URLSearchParams.");if(arguments.length<1)throw new globalObject.
TypeError(`Failed to execute 'getAll' on 'URLSearchParams': 1 argument required, but only ${arguments.length} present.`);
let args=[];{let curArg=arguments[0];curArg=conversions.USVString(curArg,{context:"Failed to execute 'getAll' on 'URLSea\
rchParams': parameter 1",globals:globalObject}),args.push(curArg)}return utils.tryWrapperForImpl(esValue[implSymbol].getAll(
...args))}has(name){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.
TypeError("'has' called on an object that is not a valid instance of URLSearchParams.");if(arguments.length<1)throw new globalObject.
TypeError(`Failed to execute 'has' on 'URLSearchParams': 1 argument required, but only ${arguments.length} present.`);let args=[];
{let curArg=arguments[0];curArg=conversions.USVString(curArg,{context:"Failed to execute 'has' on 'URLSearchParams': par\
ameter 1",globals:globalObject}),args.push(curArg)}{let curArg=arguments[1];curArg!==void 0&&(curArg=conversions.USVString(
curArg,{context:"Failed to execute 'has' on 'URLSearchParams': parameter 2",globals:globalObject})),args.push(curArg)}return esValue[implSymbol].
has(...args)}set(name,value){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.
TypeError("'set' called on an object that is not a valid instance of URLSearchParams.");if(arguments.length<2)throw new globalObject.
TypeError(`Failed to execute 'set' on 'URLSearchParams': 2 arguments required, but only ${arguments.length} present.`);let args=[];
{let curArg=arguments[0];curArg=conversions.USVString(curArg,{context:"Failed to execute 'set' on 'URLSearchParams': par\
ameter 1",globals:globalObject}),args.push(curArg)}{let curArg=arguments[1];curArg=conversions.USVString(curArg,{context:"\
Failed to execute 'set' on 'URLSearchParams': parameter 2",globals:globalObject}),args.push(curArg)}return utils.tryWrapperForImpl(
esValue[implSymbol].set(...args))}sort(){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))
throw new globalObject.TypeError("'sort' called on an object that is not a valid instance of URLSearchParams.");return utils.
tryWrapperForImpl(esValue[implSymbol].sort())}toString(){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.
is(esValue))throw new globalObject.TypeError("'toString' called on an object that is not a valid instance of URLSearchPa\
rams.");return esValue[implSymbol].toString()}keys(){if(!exports.is(this))throw new globalObject.TypeError("'keys' calle\
d on an object that is not a valid instance of URLSearchParams.");return exports.createDefaultIterator(globalObject,this,
"key")}values(){if(!exports.is(this))throw new globalObject.TypeError("'values' called on an object that is not a valid \
instance of URLSearchParams.");return exports.createDefaultIterator(globalObject,this,"value")}entries(){if(!exports.is(
this))throw new globalObject.TypeError("'entries' called on an object that is not a valid instance of URLSearchParams.");
return exports.createDefaultIterator(globalObject,this,"key+value")}forEach(callback){if(!exports.is(this))throw new globalObject.
TypeError("'forEach' called on an object that is not a valid instance of URLSearchParams.");if(arguments.length<1)throw new globalObject.
TypeError("Failed to execute 'forEach' on 'iterable': 1 argument required, but only 0 present.");callback=Function2.convert(
globalObject,callback,{context:"Failed to execute 'forEach' on 'iterable': The callback provided as parameter 1"});let thisArg=arguments[1],
pairs=Array.from(this[implSymbol]),i=0;for(;i<pairs.length;){let[key,value]=pairs[i].map(utils.tryWrapperForImpl);callback.
call(thisArg,value,key,this),pairs=Array.from(this[implSymbol]),i++}}get size(){let esValue=this!==null&&this!==void 0?this:
globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'get size' called on an object that is not a vali\
d instance of URLSearchParams.");return esValue[implSymbol].size}}Object.defineProperties(URLSearchParams2.prototype,{append:{
enumerable:!0},delete:{enumerable:!0},get:{enumerable:!0},getAll:{enumerable:!0},has:{enumerable:!0},set:{enumerable:!0},
sort:{enumerable:!0},toString:{enumerable:!0},keys:{enumerable:!0},values:{enumerable:!0},entries:{enumerable:!0},forEach:{
enumerable:!0},size:{enumerable:!0},[Symbol.toStringTag]:{value:"URLSearchParams",configurable:!0},[Symbol.iterator]:{value:URLSearchParams2.
prototype.entries,configurable:!0,writable:!0}}),ctorRegistry[interfaceName]=URLSearchParams2,ctorRegistry["URLSearchPar\
ams Iterator"]=Object.create(ctorRegistry["%IteratorPrototype%"],{[Symbol.toStringTag]:{configurable:!0,value:"URLSearch\
Params Iterator"}}),utils.define(ctorRegistry["URLSearchParams Iterator"],{next(){let internal=this&&this[utils.iterInternalSymbol];
if(!internal)throw new globalObject.TypeError("next() called on a value that is not a URLSearchParams iterator object");
let{target,kind,index}=internal,values=Array.from(target[implSymbol]),len=values.length;if(index>=len)return newObjectInRealm(
globalObject,{value:void 0,done:!0});let pair=values[index];return internal.index=index+1,newObjectInRealm(globalObject,
utils.iteratorResult(pair.map(utils.tryWrapperForImpl),kind))}}),Object.defineProperty(globalObject,interfaceName,{configurable:!0,
writable:!0,value:URLSearchParams2})};var Impl=require_URLSearchParams_impl()}});var require_URL_impl=__commonJS({"node_modules/whatwg-url/lib/URL-impl.js"(exports){"use strict";var usm=require_url_state_machine(),
urlencoded=require_urlencoded(),URLSearchParams2=require_URLSearchParams();exports.implementation=class URLImpl{constructor(globalObject,[
url,base]){let parsedBase=null;if(base!==void 0&&(parsedBase=usm.basicURLParse(base),parsedBase===null))throw new TypeError(
`Invalid base URL: ${base}`);let parsedURL=usm.basicURLParse(url,{baseURL:parsedBase});if(parsedURL===null)throw new TypeError(
`Invalid URL: ${url}`);let query=parsedURL.query!==null?parsedURL.query:"";this._url=parsedURL,this._query=URLSearchParams2.
createImpl(globalObject,[query],{doNotStripQMark:!0}),this._query._url=this}static parse(globalObject,input,base){try{return new URLImpl(
globalObject,[input,base])}catch{return null}}static canParse(url,base){let parsedBase=null;return!(base!==void 0&&(parsedBase=
usm.basicURLParse(base),parsedBase===null)||usm.basicURLParse(url,{baseURL:parsedBase})===null)}get href(){return usm.serializeURL(
this._url)}set href(v){let parsedURL=usm.basicURLParse(v);if(parsedURL===null)throw new TypeError(`Invalid URL: ${v}`);this.
_url=parsedURL,this._query._list.splice(0);let{query}=parsedURL;query!==null&&(this._query._list=urlencoded.parseUrlencodedString(
query))}get origin(){return usm.serializeURLOrigin(this._url)}get protocol(){return`${this._url.scheme}:`}set protocol(v){
usm.basicURLParse(`${v}:`,{url:this._url,stateOverride:"scheme start"})}get username(){return this._url.username}set username(v){
usm.cannotHaveAUsernamePasswordPort(this._url)||usm.setTheUsername(this._url,v)}get password(){return this._url.password}set password(v){
usm.cannotHaveAUsernamePasswordPort(this._url)||usm.setThePassword(this._url,v)}get host(){let url=this._url;return url.
host===null?"":url.port===null?usm.serializeHost(url.host):`${usm.serializeHost(url.host)}:${usm.serializeInteger(url.port)}`}set host(v){
usm.hasAnOpaquePath(this._url)||usm.basicURLParse(v,{url:this._url,stateOverride:"host"})}get hostname(){return this._url.
host===null?"":usm.serializeHost(this._url.host)}set hostname(v){usm.hasAnOpaquePath(this._url)||usm.basicURLParse(v,{url:this.
_url,stateOverride:"hostname"})}get port(){return this._url.port===null?"":usm.serializeInteger(this._url.port)}set port(v){
usm.cannotHaveAUsernamePasswordPort(this._url)||(v===""?this._url.port=null:usm.basicURLParse(v,{url:this._url,stateOverride:"\
port"}))}get pathname(){return usm.serializePath(this._url)}set pathname(v){usm.hasAnOpaquePath(this._url)||(this._url.path=
[],usm.basicURLParse(v,{url:this._url,stateOverride:"path start"}))}get search(){return this._url.query===null||this._url.
query===""?"":`?${this._url.query}`}set search(v){let url=this._url;if(v===""){url.query=null,this._query._list=[];return}
let input=v[0]==="?"?v.substring(1):v;url.query="",usm.basicURLParse(input,{url,stateOverride:"query"}),this._query._list=
urlencoded.parseUrlencodedString(input)}get searchParams(){return this._query}get hash(){return this._url.fragment===null||
this._url.fragment===""?"":`#${this._url.fragment}`}set hash(v){if(v===""){this._url.fragment=null;return}let input=v[0]===
"#"?v.substring(1):v;this._url.fragment="",usm.basicURLParse(input,{url:this._url,stateOverride:"fragment"})}toJSON(){return this.
href}}}});var require_URL=__commonJS({"node_modules/whatwg-url/lib/URL.js"(exports){"use strict";var conversions=require_lib(),utils=require_utils(),
implSymbol=utils.implSymbol,ctorRegistrySymbol=utils.ctorRegistrySymbol,interfaceName="URL";exports.is=value=>utils.isObject(
value)&&utils.hasOwn(value,implSymbol)&&value[implSymbol]instanceof Impl.implementation;exports.isImpl=value=>utils.isObject(
value)&&value instanceof Impl.implementation;exports.convert=(globalObject,value,{context="The provided value"}={})=>{if(exports.
is(value))return utils.implForWrapper(value);throw new globalObject.TypeError(`${context} is not of type 'URL'.`)};function makeWrapper(globalObject,newTarget){
let proto;return newTarget!==void 0&&(proto=newTarget.prototype),utils.isObject(proto)||(proto=globalObject[ctorRegistrySymbol].
URL.prototype),Object.create(proto)}exports.create=(globalObject,constructorArgs,privateData)=>{let wrapper=makeWrapper(
globalObject);return exports.setup(wrapper,globalObject,constructorArgs,privateData)};exports.createImpl=(globalObject,constructorArgs,privateData)=>{
let wrapper=exports.create(globalObject,constructorArgs,privateData);return utils.implForWrapper(wrapper)};exports._internalSetup=
(wrapper,globalObject)=>{};exports.setup=(wrapper,globalObject,constructorArgs=[],privateData={})=>(privateData.wrapper=
wrapper,exports._internalSetup(wrapper,globalObject),Object.defineProperty(wrapper,implSymbol,{value:new Impl.implementation(
globalObject,constructorArgs,privateData),configurable:!0}),wrapper[implSymbol][utils.wrapperSymbol]=wrapper,Impl.init&&
Impl.init(wrapper[implSymbol]),wrapper);exports.new=(globalObject,newTarget)=>{let wrapper=makeWrapper(globalObject,newTarget);
return exports._internalSetup(wrapper,globalObject),Object.defineProperty(wrapper,implSymbol,{value:Object.create(Impl.implementation.
prototype),configurable:!0}),wrapper[implSymbol][utils.wrapperSymbol]=wrapper,Impl.init&&Impl.init(wrapper[implSymbol]),
wrapper[implSymbol]};var exposed=new Set(["Window","Worker"]);exports.install=(globalObject,globalNames)=>{if(!globalNames.
some(globalName=>exposed.has(globalName)))return;let ctorRegistry=utils.initCtorRegistry(globalObject);class URL2{constructor(url){
if(arguments.length<1)throw new globalObject.TypeError(`Failed to construct 'URL': 1 argument required, but only ${arguments.
length} present.`);let args=[];{let curArg=arguments[0];curArg=conversions.USVString(curArg,{context:"Failed to construc\
t 'URL': parameter 1",globals:globalObject}),args.push(curArg)}{let curArg=arguments[1];curArg!==void 0&&(curArg=conversions.
USVString(curArg,{context:"Failed to construct 'URL': parameter 2",globals:globalObject})),args.push(curArg)}return exports.
setup(Object.create(new.target.prototype),globalObject,args)}toJSON(){let esValue=this!==null&&this!==void 0?this:globalObject;
if(!exports.is(esValue))throw new globalObject.TypeError("'toJSON' called on an object that is not a valid instance of U\
RL.");return esValue[implSymbol].toJSON()}get href(){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.
is(esValue))throw new globalObject.TypeError("'get href' called on an object that is not a valid instance of URL.");return esValue[implSymbol].
href}set href(V){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.
TypeError("'set href' called on an object that is not a valid instance of URL.");V=conversions.USVString(V,{context:"Fai\
led to set the 'href' property on 'URL': The provided value",globals:globalObject}),esValue[implSymbol].href=V}toString(){
let esValue=this;if(!exports.is(esValue))throw new globalObject.TypeError("'toString' called on an object that is not a \
valid instance of URL.");return esValue[implSymbol].href}get origin(){let esValue=this!==null&&this!==void 0?this:globalObject;
if(!exports.is(esValue))throw new globalObject.TypeError("'get origin' called on an object that is not a valid instance \
of URL.");return esValue[implSymbol].origin}get protocol(){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.
is(esValue))throw new globalObject.TypeError("'get protocol' called on an object that is not a valid instance of URL.");
return esValue[implSymbol].protocol}set protocol(V){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.
is(esValue))throw new globalObject.TypeError("'set protocol' called on an object that is not a valid instance of URL.");
V=conversions.USVString(V,{context:"Failed to set the 'protocol' property on 'URL': The provided value",globals:globalObject}),
esValue[implSymbol].protocol=V}get username(){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))
throw new globalObject.TypeError("'get username' called on an object that is not a valid instance of URL.");return esValue[implSymbol].
username}set username(V){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.
TypeError("'set username' called on an object that is not a valid instance of URL.");V=conversions.USVString(V,{context:"\
Failed to set the 'username' property on 'URL': The provided value",globals:globalObject}),esValue[implSymbol].username=
V}get password(){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.
TypeError("'get password' called on an object that is not a valid instance of URL.");return esValue[implSymbol].password}set password(V){
let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'set \
password' called on an object that is not a valid instance of URL.");V=conversions.USVString(V,{context:"Failed to set t\
he 'password' property on 'URL': The provided value",globals:globalObject}),esValue[implSymbol].password=V}get host(){let esValue=this!==
null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'get host' called on an \
object that is not a valid instance of URL.");return esValue[implSymbol].host}set host(V){let esValue=this!==null&&this!==
void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'set host' called on an object that i\
s not a valid instance of URL.");V=conversions.USVString(V,{context:"Failed to set the 'host' property on 'URL': The pro\
vided value",globals:globalObject}),esValue[implSymbol].host=V}get hostname(){let esValue=this!==null&&this!==void 0?this:
globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'get hostname' called on an object that is not a \
valid instance of URL.");return esValue[implSymbol].hostname}set hostname(V){let esValue=this!==null&&this!==void 0?this:
globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'set hostname' called on an object that is not a \
valid instance of URL.");V=conversions.USVString(V,{context:"Failed to set the 'hostname' property on 'URL': The provide\
d value",globals:globalObject}),esValue[implSymbol].hostname=V}get port(){let esValue=this!==null&&this!==void 0?this:globalObject;
if(!exports.is(esValue))throw new globalObject.TypeError("'get port' called on an object that is not a valid instance of\
 URL.");return esValue[implSymbol].port}set port(V){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.
is(esValue))throw new globalObject.TypeError("'set port' called on an object that is not a valid instance of URL.");V=conversions.
USVString(V,{context:"Failed to set the 'port' property on 'URL': The provided value",globals:globalObject}),esValue[implSymbol].
port=V}get pathname(){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.
TypeError("'get pathname' called on an object that is not a valid instance of URL.");return esValue[implSymbol].pathname}set pathname(V){
let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'set \
pathname' called on an object that is not a valid instance of URL.");V=conversions.USVString(V,{context:"Failed to set t\
he 'pathname' property on 'URL': The provided value",globals:globalObject}),esValue[implSymbol].pathname=V}get search(){
let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'get \
search' called on an object that is not a valid instance of URL.");return esValue[implSymbol].search}set search(V){let esValue=this!==
null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'set search' called on a\
n object that is not a valid instance of URL.");V=conversions.USVString(V,{context:"Failed to set the 'search' property \
on 'URL': The provided value",globals:globalObject}),esValue[implSymbol].search=V}get searchParams(){let esValue=this!==
null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.TypeError("'get searchParams' calle\
d on an object that is not a valid instance of URL.");return utils.getSameObject(this,"searchParams",()=>utils.tryWrapperForImpl(
esValue[implSymbol].searchParams))}get hash(){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))
throw new globalObject.TypeError("'get hash' called on an object that is not a valid instance of URL.");return esValue[implSymbol].
hash}set hash(V){let esValue=this!==null&&this!==void 0?this:globalObject;if(!exports.is(esValue))throw new globalObject.
TypeError("'set hash' called on an object that is not a valid instance of URL.");V=conversions.USVString(V,{context:"Fai\
led to set the 'hash' property on 'URL': The provided value",globals:globalObject}),esValue[implSymbol].hash=V}static parse(url){
if(arguments.length<1)throw new globalObject.TypeError(`Failed to execute 'parse' on 'URL': 1 argument required, but onl\
y ${arguments.length} present.`);let args=[];{let curArg=arguments[0];curArg=conversions.USVString(curArg,{context:"Fail\
ed to execute 'parse' on 'URL': parameter 1",globals:globalObject}),args.push(curArg)}{let curArg=arguments[1];curArg!==
void 0&&(curArg=conversions.USVString(curArg,{context:"Failed to execute 'parse' on 'URL': parameter 2",globals:globalObject})),
args.push(curArg)}return utils.tryWrapperForImpl(Impl.implementation.parse(globalObject,...args))}static canParse(url){if(arguments.
length<1)throw new globalObject.TypeError(`Failed to execute 'canParse' on 'URL': 1 argument required, but only ${arguments.
length} present.`);let args=[];{let curArg=arguments[0];curArg=conversions.USVString(curArg,{context:"Failed to execute \
'canParse' on 'URL': parameter 1",globals:globalObject}),args.push(curArg)}{let curArg=arguments[1];curArg!==void 0&&(curArg=
conversions.USVString(curArg,{context:"Failed to execute 'canParse' on 'URL': parameter 2",globals:globalObject})),args.
push(curArg)}return Impl.implementation.canParse(...args)}}Object.defineProperties(URL2.prototype,{toJSON:{enumerable:!0},
href:{enumerable:!0},toString:{enumerable:!0},origin:{enumerable:!0},protocol:{enumerable:!0},username:{enumerable:!0},password:{
enumerable:!0},host:{enumerable:!0},hostname:{enumerable:!0},port:{enumerable:!0},pathname:{enumerable:!0},search:{enumerable:!0},
searchParams:{enumerable:!0},hash:{enumerable:!0},[Symbol.toStringTag]:{value:"URL",configurable:!0}}),Object.defineProperties(
URL2,{parse:{enumerable:!0},canParse:{enumerable:!0}}),ctorRegistry[interfaceName]=URL2,Object.defineProperty(globalObject,
interfaceName,{configurable:!0,writable:!0,value:URL2}),globalNames.includes("Window")&&Object.defineProperty(globalObject,
"webkitURL",{configurable:!0,writable:!0,value:URL2})};var Impl=require_URL_impl()}});var require_webidl2js_wrapper=__commonJS({"node_modules/whatwg-url/webidl2js-wrapper.js"(exports){"use strict";var URL2=require_URL(),
URLSearchParams2=require_URLSearchParams();exports.URL=URL2;exports.URLSearchParams=URLSearchParams2}});var require_whatwg_url=__commonJS({"node_modules/whatwg-url/index.js"(exports){"use strict";var{URL:URL2,URLSearchParams:URLSearchParams2}=require_webidl2js_wrapper(),
urlStateMachine=require_url_state_machine(),percentEncoding=require_percent_encoding(),sharedGlobalObject={Array,Object,
Promise,String,TypeError};URL2.install(sharedGlobalObject,["Window"]);URLSearchParams2.install(sharedGlobalObject,["Wind\
ow"]);exports.URL=sharedGlobalObject.URL;exports.URLSearchParams=sharedGlobalObject.URLSearchParams;exports.parseURL=urlStateMachine.
parseURL;exports.basicURLParse=urlStateMachine.basicURLParse;exports.serializeURL=urlStateMachine.serializeURL;exports.serializePath=
urlStateMachine.serializePath;exports.serializeHost=urlStateMachine.serializeHost;exports.serializeInteger=urlStateMachine.
serializeInteger;exports.serializeURLOrigin=urlStateMachine.serializeURLOrigin;exports.setTheUsername=urlStateMachine.setTheUsername;
exports.setThePassword=urlStateMachine.setThePassword;exports.cannotHaveAUsernamePasswordPort=urlStateMachine.cannotHaveAUsernamePasswordPort;
exports.hasAnOpaquePath=urlStateMachine.hasAnOpaquePath;exports.percentDecodeString=percentEncoding.percentDecodeString;
exports.percentDecodeBytes=percentEncoding.percentDecodeBytes}});function define(globals){for(let[name,value]of Object.entries(globals))Object.defineProperty(globalThis,name,{value,writable:!0,
configurable:!0,enumerable:!1})}var LABELS={"utf-8":"utf-8 utf8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8","utf-16le":"utf-16le utf-\
16 ucs-2 unicode unicodefeff iso-10646-ucs-2 csunicode","utf-16be":"utf-16be unicodefffe","windows-1252":"windows-1252 l\
atin1 iso-8859-1 iso8859-1 iso88591 iso_8859-1 iso_8859-1:1987 iso-ir-100 l1 csisolatin1 ascii us-ascii ansi_x3.4-1968 c\
p1252 cp819 ibm819 x-cp1252"},NAMES=new Map(Object.entries(LABELS).flatMap(([name,labels])=>labels.split(" ").map(label=>[
label,name]))),WINDOWS_1252="\u20AC\x81\u201A\u0192\u201E\u2026\u2020\u2021\u02C6\u2030\u0160\u2039\u0152\x8D\u017D\x8F\x90\u2018\u2019\u201C\u201D\u2022\u2013\u2014\u02DC\u2122\u0161\u203A\u0153\x9D\u017E\u0178",
PIECE=8192,fromCodes=String.fromCharCode,TextEncoder2=class{get encoding(){return"utf-8"}encode(text=""){text=String(text);
let bytes=new Uint8Array(text.length*3);return bytes.slice(0,write(text,bytes).written)}encodeInto(text,bytes){if(!(bytes instanceof
Uint8Array))throw new TypeError("encodeInto takes a Uint8Array");return write(String(text),bytes)}};function write(text,bytes){
let{length}=text,room=bytes.length,read=0,written=0;for(;read<length;){let unit=text.charCodeAt(read);if(unit<128){if(written>=
room)break;bytes[written++]=unit}else if(unit<2048){if(written+2>room)break;bytes[written++]=192|unit>>6,bytes[written++]=
128|unit&63}else{let point=unit;if((unit&63488)===55296){let next2=text.charCodeAt(read+1);point=unit<56320&&(next2&64512)===
56320?65536+((unit&1023)<<10)+(next2&1023):65533}if(written+(point>65535?4:3)>room)break;point>65535?(bytes[written++]=240|
point>>18,bytes[written++]=128|point>>12&63,read++):bytes[written++]=224|point>>12,bytes[written++]=128|point>>6&63,bytes[written++]=
128|point&63}read++}return{read,written}}var TextDecoder2=class{#encoding;#isFatal;#keepsMark;#rest=[];#isBegun=!1;constructor(label="\
utf-8",{fatal=!1,ignoreBOM=!1}={}){if(this.#encoding=NAMES.get(String(label).replace(/^[\t\n\f\r ]+|[\t\n\f\r ]+$/g,"").
toLowerCase()),!this.#encoding)throw new RangeError(`the encoding ${label} is not known; there are utf-8, utf-16le, utf-\
16be and latin1`);this.#isFatal=!!fatal,this.#keepsMark=!!ignoreBOM}get encoding(){return this.#encoding}get fatal(){return this.#isFatal}get ignoreBOM(){
return this.#keepsMark}decode(given,{stream=!1}={}){let bytes=view(given);if(this.#rest.length>0){let joined=new Uint8Array(
this.#rest.length+bytes.length);joined.set(this.#rest),joined.set(bytes,this.#rest.length),bytes=joined}let decoder=this.#encoding===
"utf-8"?decodeUtf8:this.#encoding==="windows-1252"?decodeLatin:decodeUtf16,decoded;try{decoded=decoder(bytes,stream,this.#isFatal,
this.#encoding==="utf-16be")}catch(error2){throw this.#rest=[],this.#isBegun=!1,error2}let[text,end]=decoded;return this.#rest=
Array.from(bytes.subarray(end)),!this.#isBegun&&text.length>0&&(!this.#keepsMark&&this.#encoding!=="windows-1252"&&text.
charCodeAt(0)===65279&&(text=text.slice(1)),this.#isBegun=!0),stream||(this.#isBegun=!1),text}};function view(given){if(given===
void 0)return new Uint8Array(0);if(given instanceof Uint8Array)return given;if(ArrayBuffer.isView(given))return new Uint8Array(
given.buffer,given.byteOffset,given.byteLength);if(given instanceof ArrayBuffer||typeof SharedArrayBuffer=="function"&&given instanceof
SharedArrayBuffer)return new Uint8Array(given);throw new TypeError("decode takes an ArrayBuffer or a view of one")}function replace(isFatal){
if(isFatal)throw new TypeError("the bytes are not text of this encoding");return 65533}function decodeLatin(bytes){let text="";
for(let at=0;at<bytes.length;at+=PIECE)text+=fromCodes.apply(null,bytes.subarray(at,at+PIECE));return[text.replace(/[\x80-\x9f]/g,
byte=>WINDOWS_1252[byte.charCodeAt(0)-128]),bytes.length]}function decodeUtf16(bytes,stream,isFatal,isBig){let[high,low]=isBig?
[0,1]:[1,0],even=bytes.length&-2,text="",at=0;for(;at<even;){let units=[];for(;at<even&&units.length<PIECE;at+=2){let unit=bytes[at+
high]<<8|bytes[at+low];if((unit&63488)!==55296){units.push(unit);continue}if(unit<56320&&at+2>=even&&stream)return[text+
fromCodes.apply(null,units),at];let next2=at+2<even?bytes[at+2+high]<<8|bytes[at+2+low]:0;if(unit<56320&&(next2&64512)===
56320)units.push(unit,next2),at+=2;else if(units.push(replace(isFatal)),unit<56320&&at+2>=even&&bytes.length>even)return[
text+fromCodes.apply(null,units),bytes.length]}text+=fromCodes.apply(null,units)}return even<bytes.length&&!stream?[text+
fromCodes(replace(isFatal)),bytes.length]:[text,even]}function decodeUtf8(bytes,stream,isFatal){let text="",at=0;for(;at<
bytes.length;){let end=Math.min(at+PIECE,bytes.length);for(let back=1;back<=3&&end-back>at;back++){let byte=bytes[end-back];
if(byte<128)break;if(byte>=192){(byte>=240?4:byte>=224?3:2)>back&&(end-=back);break}}let plain=fromCodes.apply(null,bytes.
subarray(at,end));if(/^[\0-\x7f]*$/.test(plain)){text+=plain,at=end;continue}try{text+=decodeURIComponent(escape(plain)),
at=end}catch{let[piece,to]=decodeByByte(bytes,at,end,stream,isFatal);if(text+=piece,to<end)return[text,to];at=to}}return[
text,at]}function decodeByByte(bytes,from,end,stream,isFatal){let units=[],at=from;for(;at<end;){let first=bytes[at];if(first<
128){units.push(first),at++;continue}let length=first<194||first>244?0:first<224?2:first<240?3:4,lower=first===224?160:first===
240?144:128,upper=first===237?159:first===244?143:191,point=length===2?first&31:length===3?first&15:first&7,taken=1;for(;taken<
length&&at+taken<bytes.length&&bytes[at+taken]>=lower&&bytes[at+taken]<=upper;)point=point<<6|bytes[at+taken++]&63,lower=
128,upper=191;if(taken<length&&at+taken===bytes.length&&stream)break;length===0||taken<length?units.push(replace(isFatal)):
point>65535?units.push(55232+(point>>10),56320|point&1023):units.push(point),at+=taken}return[fromCodes.apply(null,units),
at]}define({TextEncoder:TextEncoder2,TextDecoder:TextDecoder2});var ERRORS={EvalError,RangeError,ReferenceError,SyntaxError,TypeError,URIError};function fail(value){let what=typeof value==
"symbol"?"a symbol":typeof value=="function"?"a function":"this object";throw new DOMException(`${what} cannot be cloned`,
"DataCloneError")}function clone(value,known){if((typeof value=="function"||typeof value=="symbol")&&fail(value),value===
null||typeof value!="object")return value;if(known.has(value))return known.get(value);let keep=made2=>(known.set(value,made2),
made2);for(let kind of[Boolean,Number,String,BigInt])if(value instanceof kind)return keep(Object(value.valueOf()));if(value instanceof
Date)return keep(new Date(value.getTime()));if(value instanceof RegExp)return keep(new RegExp(value.source,value.flags));
if(value instanceof ArrayBuffer)return keep(value.slice(0));if(ArrayBuffer.isView(value)){let length=value instanceof DataView?
value.byteLength:value.length;return keep(new value.constructor(clone(value.buffer,known),value.byteOffset,length))}if(value instanceof
Map){let made2=keep(new Map);for(let[key,item]of[...value])made2.set(clone(key,known),clone(item,known));return made2}if(value instanceof
Set){let made2=keep(new Set);for(let item of[...value])made2.add(clone(item,known));return made2}if(value instanceof Error){
let made2=keep(new(ERRORS[value.name]??Error)(value.message)),define2=(name,item)=>Object.defineProperty(made2,name,{value:item,
writable:!0,configurable:!0});return define2("stack",value.stack),Object.hasOwn(value,"cause")&&define2("cause",clone(value.
cause,known)),made2}for(let kind of[Promise,WeakMap,WeakSet,WeakRef])value instanceof kind&&fail(value);let made=keep(Array.
isArray(value)?new Array(value.length):{});for(let key of Object.keys(value)){let item=clone(value[key],known);Object.defineProperty(
made,key,{value:item,writable:!0,configurable:!0,enumerable:!0})}return made}function structuredClone(value,{transfer=[]}={}){
for(let item of transfer)item instanceof ArrayBuffer||fail(item);let made=clone(value,new Map);for(let item of transfer)
item.transfer?.();return made}define({structuredClone});var import_whatwg_url=__toESM(require_whatwg_url());define({URL:import_whatwg_url.URL,URLSearchParams:import_whatwg_url.URLSearchParams});import*as host from"lobster:step/host@0.1.0";function describeValue(value){if(typeof value=="function")return"a function";if(typeof value=="symbol")return"a symbol";
if(value===void 0)return"undefined";try{return JSON.stringify(value)??String(value)}catch{return String(value)}}function shown(value){
return typeof value=="string"?value:value instanceof Error?[String(value),String(value.stack??"").trimEnd()].filter(Boolean).
join(`
`):value instanceof Map||value instanceof Set?`${value.constructor.name} ${describeValue([...value])}`:describeValue(value)}
function line(words){let rest=words,first=[];return typeof words[0]=="string"&&words.length>1&&words[0].includes("%")&&(rest=
words.slice(1),first=[words[0].replace(/%[sdifjoOc%]/g,mark=>{if(mark==="%%")return"%";if(rest.length===0)return mark;let word=rest.
shift();return mark==="%c"?"":mark==="%d"||mark==="%f"?String(Number(word)):mark==="%i"?String(Number.parseInt(word,10)):
shown(word)})]),[...first,...rest.map(shown)].join(" ")}var indent="",counts=new Map,say=(level2,text)=>host.log(level2,
indent+text,""),level=name=>(...words)=>say(name,line(words)),console={log:level("info"),info:level("info"),warn:level("\
warn"),error:level("error"),debug:level("debug"),trace:level("trace"),dir:value=>say("info",shown(value)),table:value=>say(
"info",shown(value)),assert(holds,...words){holds||say("error",["Assertion failed",line(words)].filter(Boolean).join(": "))},
count(label="default"){counts.set(label,(counts.get(label)??0)+1),say("info",`${label}: ${counts.get(label)}`)},countReset:(label="\
default")=>{counts.delete(label)},group(...words){words.length>0&&say("info",line(words)),indent+="  "},groupEnd(){indent=
indent.slice(2)},time(){},timeLog(){},timeEnd(){}};console.groupCollapsed=console.group;define({console});var queued=[];function queueMicrotask(call){if(typeof call!="function")throw new TypeError("queueMicrotask takes a funct\
ion");queued.push(call)}function runMicrotasks(){for(let at=0;at<queued.length;at++)queued[at]();queued=[]}define({queueMicrotask});var state=[0,0,0,0],asked=()=>"";function seedCrypto(text){asked=text}function begin(){let text=String(asked());asked=void 0,
state=[2166136261,2654435769,2246822507,3266489909];let[a,b,c,d]=state;for(let at=0;at<text.length;at++){let unit=text.charCodeAt(
at);a=Math.imul(a^unit,16777619),b=Math.imul(b^unit^a>>>15,16777619),c=Math.imul(c^unit^b>>>13,16777619),d=Math.imul(d^unit^
c>>>11,16777619)}state=[a,b,c,d];for(let round=0;round<16;round++)next()}function next(){asked&&begin();let[a,b,c,d]=state,
sum=a+b+d|0;return d=d+1|0,a=b^b>>>9,b=c+(c<<3)|0,c=(c<<21|c>>>11)+sum|0,state=[a,b,c,d],sum>>>0}function nextFraction(){
return((next()>>>5)*67108864+(next()>>>6))/9007199254740992}var INTEGERS=[Int8Array,Uint8Array,Uint8ClampedArray,Int16Array,
Uint16Array,Int32Array,Uint32Array,BigInt64Array,BigUint64Array],MOST=65536,Crypto=class{getRandomValues(array){if(!INTEGERS.
some(kind=>array instanceof kind))throw new DOMException("getRandomValues takes an array of integers","TypeMismatchError");
if(array.byteLength>MOST)throw new DOMException(`getRandomValues gives ${MOST} bytes at most`,"QuotaExceededError");let bytes=new Uint8Array(
array.buffer,array.byteOffset,array.byteLength);for(let at=0;at<bytes.length;at+=4){let bits=next();for(let byte=0;byte<
4&&at+byte<bytes.length;byte++)bytes[at+byte]=bits>>>8*byte}return array}randomUUID(){let bytes=this.getRandomValues(new Uint8Array(
16));bytes[6]=bytes[6]&15|64,bytes[8]=bytes[8]&63|128;let hex=Array.from(bytes,byte=>byte.toString(16).padStart(2,"0")).
join("");return[hex.slice(0,8),hex.slice(8,12),hex.slice(12,16),hex.slice(16,20),hex.slice(20)].join("-")}};define({Crypto,
crypto:new Crypto});export{describeValue,nextFraction,runMicrotasks,seedCrypto};
